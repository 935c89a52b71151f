//go:build !unix

package redisproc

import (
	"errors"
	"os/exec"
)

func dieWithParent(*exec.Cmd) {}

func watchParent(int) (release func(), err error) { return func() {}, nil }

func (c *child) pause() error { return errors.New("not possible on this system") }

func (c *child) resume() error { return errors.New("not possible on this system") }
