package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// podManager is the container runtime for Kubernetes' streaming server.

// Exec runs a command next to the process of a container, with the environment and folder of that process.
func (m *podManager) Exec(_ context.Context, id string, argv []string, in io.Reader, stdout, stderr io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	c, err := m.container(id)
	if err != nil {
		return err
	}
	environment := c.spec.environment
	if tty {
		environment = append(environment[:len(environment):len(environment)], "TERM=xterm")
	}
	command := newCommand(argv, environment, c.spec.folder)
	if tty {
		err = m.execOnTerminal(command, in, stdout, resize)
	} else {
		err = m.execOnPipes(command, in, stdout, stderr)
	}
	if err != nil {
		return fmt.Errorf("failed to exec in container %q: %w", id, err)
	}
	if code := exitCodeOf(command.Process.Wait()); code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
	}
	return nil
}

func (m *podManager) execOnTerminal(command *exec.Cmd, in io.Reader, stdout io.Writer, resize <-chan remotecommand.TerminalSize) error {
	terminal, err := startOnTerminal(command)
	if err != nil {
		return err
	}
	defer terminal.Close()
	defer m.track(command.Process)()
	go followSize(terminal, resize)
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if in != nil {
			_, _ = io.Copy(terminal, in)
			_, _ = io.Copy(io.Discard, in)
		}
	}()
	copyUntilEnd(stdout, terminal)
	linger(fed)
	return nil
}

func (m *podManager) execOnPipes(command *exec.Cmd, in io.Reader, stdout, stderr io.Writer) error {
	outPipe, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	errPipe, err := command.StderrPipe()
	if err != nil {
		return err
	}
	var inPipe io.WriteCloser
	if in != nil {
		if inPipe, err = command.StdinPipe(); err != nil {
			return err
		}
	}
	if err := command.Start(); err != nil {
		return err
	}
	defer m.track(command.Process)()
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if in != nil {
			_, _ = io.Copy(inPipe, in)
			_ = inPipe.Close()
			// Discards input that the process did not read, so that the client can send all its input.
			_, _ = io.Copy(io.Discard, in)
		}
	}()
	var copies sync.WaitGroup
	copies.Go(func() { copyUntilEnd(stdout, outPipe) })
	copies.Go(func() { copyUntilEnd(stderr, errPipe) })
	copies.Wait()
	linger(fed)
	return errors.Join(outPipe.Close(), errPipe.Close())
}

// copyUntilEnd reads all output of a process, even after the client has disconnected: a container runtime does not kill
// the command of a disconnected client.
func copyUntilEnd(w io.Writer, r io.Reader) {
	if w != nil {
		_, _ = io.Copy(w, r)
	}
	_, _ = io.Copy(io.Discard, r)
}

// Attach connects a client to the process of a container.
func (m *podManager) Attach(_ context.Context, id string, in io.Reader, stdout, stderr io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize) error {
	c, err := m.container(id)
	if err != nil {
		return err
	}
	return c.attach(in, stdout, stderr, resize)
}

// PortForward connects to a port of this machine. The two directions end independently, so a client can send its
// request, half-close the connection, and then read the response.
func (m *podManager) PortForward(ctx context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("failed to connect to port %d: %w", port, err)
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, stream)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	return err
}

func (m *podManager) container(id string) (*container, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pods {
		for _, c := range p.running {
			if c.id == id {
				return c, nil
			}
		}
	}
	return nil, status.Errorf(codes.NotFound, "container %q is not running", id)
}
