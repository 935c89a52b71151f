package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/program"
)

// pace is what a pacer measured: how punctual a program can be on this machine.
type pace struct {
	Slots  int           // moments at which it had something to send
	Late   int           // of them, for which a call that left in time could be refused
	Missed int           // of them, for which it was so late that the worker would not have sent
	Worst  time.Duration // the most that anything arrived late
}

const (
	paceEvery = 5 * time.Millisecond

	// tooLate is how late the worker still sends.
	tooLate = 3 * time.Millisecond
	// wayBound is what is left of the 5 ms that providers tolerate. A way that takes
	// longer than this makes calls that left in time break a limit on arrival.
	wayBound = 2 * time.Millisecond
	// missedBound is the part of its slots that the pacer may miss on a machine on
	// which the worker is to use 0.99 of its limits.
	missedBound = 0.001
)

// excuses tells whether the machine alone can have made providers refuse so many calls: at each late moment one call of
// each limit.
func (p pace) excuses(refused int64) bool { return refused <= int64(p.Late*len(bindingLimits)) }

// busy tells whether the machine had too little time to use limits up.
func (p pace) busy() bool { return float64(p.Missed) > missedBound*float64(p.Slots) }

// String tells the user whether slots were missed because the machine was busy.
func (p pace) String() string {
	verdict := "not busy"
	switch {
	case p.busy():
		verdict = "busy"
	case p.Late > 0:
		verdict = "not busy, but late at times"
	}
	return fmt.Sprintf("a process that only keeps time missed %d of %d and was up to %.1f ms late, so this machine was %s",
		p.Missed, p.Slots, float64(p.Worst.Microseconds())/1000, verdict)
}

// pacer is a process that measures the machine while the demo runs. It shares nothing
// with the demo but the machine: a call to the demo's receivers would be held up by
// whatever holds up the worker in the same process, and would excuse it.
type pacer struct {
	cmd   *exec.Cmd
	stdin io.Closer // its end ends the pacer, also when this process is killed
	out   io.Reader
}

func startPacer() (*pacer, error) {
	cmd, err := itself("pacer")
	if err != nil {
		return nil, fmt.Errorf("start the pacer: %w", err)
	}
	p := &pacer{cmd: cmd}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start the pacer: %w", err)
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, fmt.Errorf("start the pacer: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the pacer: %w", err)
	}
	return p, nil
}

// stop ends the pacer and returns what it measured.
func (p *pacer) stop() (pace, error) {
	var measured pace
	p.stdin.Close()
	decodeErr := json.NewDecoder(p.out).Decode(&measured)
	if err := errors.Join(decodeErr, p.cmd.Wait()); err != nil {
		return pace{}, fmt.Errorf("the pacer: %w", err)
	}
	return measured, nil
}

func pacerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "pacer",
		Short:  "Measure how punctual a program can be on this machine, until stdin ends",
		Hidden: true, // dev starts it
		Args:   program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			measured, err := runPacer(cmd.InOrStdin(), cmd.OutOrStdout())
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(measured)
		},
	}
}

// runPacer sends itself a message at exact times, over a connection as a worker's calls
// take, until the input ends. It begins when it has written a line.
func runPacer(input io.Reader, output io.Writer) (pace, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return pace{}, err
	}
	defer listener.Close()
	sender, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return pace{}, err
	}
	defer sender.Close()
	receiver, err := listener.Accept()
	if err != nil {
		return pace{}, err
	}
	defer receiver.Close()

	if _, err := io.WriteString(output, "\n"); err != nil {
		return pace{}, err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, input) // however it ends, it is the end
	}()
	began := time.Now()
	sent := make(chan error, 1)
	go func() {
		defer sender.Close()
		due := paceEvery
		send := func() error {
			var message [8]byte
			binary.BigEndian.PutUint64(message[:], uint64(due))
			due += paceEvery
			_, err := sender.Write(message[:])
			return err
		}
		for {
			select {
			case <-time.After(due - time.Since(began)):
				if err := send(); err != nil {
					sent <- err
					return
				}
				continue
			case <-over:
			}
			// What was due before the end is still sent, and shows how late the machine was.
			var err error
			for end := time.Since(began); due <= end && err == nil; {
				err = send()
			}
			sent <- err
			return
		}
	}()
	var measured pace
	var message [8]byte
	for {
		if _, err := io.ReadFull(receiver, message[:]); err != nil {
			return measured, <-sent // the connection ends with the sender
		}
		late := time.Since(began) - time.Duration(binary.BigEndian.Uint64(message[:]))
		measured.Slots++
		measured.Worst = max(measured.Worst, late)
		if late > wayBound {
			measured.Late++
		}
		if late > tooLate {
			measured.Missed++
		}
	}
}
