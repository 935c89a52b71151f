package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// process is another process of this program that does a task.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *json.Decoder
	ready bool
}

func start(t task) (*process, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), taskVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	return p, p.cmd.Start()
}

// waitReady waits until the process begins with its task.
func (p *process) waitReady() error {
	if p.ready {
		return nil
	}
	p.ready = true
	return p.out.Decode(&struct{}{})
}

// stop ends the task, or waits for it if it ends by itself, and says what it used.
func (p *process) stop(byItself bool) (usage, error) {
	var u usage
	err := p.waitReady()
	if err == nil && !byItself {
		err = p.in.Close()
	}
	if err == nil {
		err = p.out.Decode(&u)
	}
	_ = p.in.Close()
	if ended := p.cmd.Wait(); ended != nil {
		err = errors.Join(err, fmt.Errorf("%v: %w", p.cmd.Args, ended))
	}
	return u, err
}

// kill ends the process whatever it does. After stop it does nothing.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// team is processes that share a task.
type team []*process

func startTeam(n int, t task) (team, error) {
	var all team
	for range n {
		p, err := start(t)
		if err != nil {
			all.kill()
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func (all team) kill() {
	for _, p := range all {
		p.kill()
	}
}

func (all team) waitReady() error {
	for _, p := range all {
		if err := p.waitReady(); err != nil {
			return err
		}
	}
	return nil
}

// stop ends all of them, and adds up what they used.
func (all team) stop(byItself bool) (usage, error) {
	var sum usage
	var errs []error
	for _, p := range all {
		u, err := p.stop(byItself)
		errs = append(errs, err)
		sum = sum.plus(u)
	}
	return sum, errors.Join(errs...)
}

// usage is what a process did.
type usage struct {
	Calls       int
	First, Last time.Time
	CPU         time.Duration
	Held        []time.Duration // for the slot, by the worker
	Dispatch    []time.Duration // calls of the dispatch script
	Latency     []time.Duration // from the call of enqueue to the handler
}

func (u usage) plus(o usage) usage {
	if u.First.IsZero() || !o.First.IsZero() && o.First.Before(u.First) {
		u.First = o.First
	}
	if o.Last.After(u.Last) {
		u.Last = o.Last
	}
	u.Calls += o.Calls
	u.CPU += o.CPU
	u.Held = append(u.Held, o.Held...)
	u.Dispatch = append(u.Dispatch, o.Dispatch...)
	u.Latency = append(u.Latency, o.Latency...)
	return u
}
