package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// spec describes a process. All references to ConfigMaps, Secrets and fields are resolved.
type spec struct {
	argv        []string
	environment []string
	folder      string
	tty, stdin  bool
	stdinOnce   bool
	logPath     string
}

// container is one run of a container of a pod. Each restart creates a new value.
type container struct {
	id      string
	spec    spec
	started time.Time
	process *os.Process
	// done is closed when the process has exited, exitCode and finished are set, and the log contains all output.
	done     chan struct{}
	exitCode int
	finished time.Time

	terminal *os.File // the master side of the PTY; nil without a terminal
	stdinMu  sync.Mutex
	stdin    io.WriteCloser // nil if the container has no standard input
	output   *broadcast
}

// startContainer starts the process of a container. It returns an error if the command cannot start.
func startContainer(id string, s spec) (*container, error) {
	log, err := openLog(s.logPath)
	if err != nil {
		return nil, err
	}
	c := &container{id: id, spec: s, done: make(chan struct{}), output: newBroadcast(log)}
	command := newCommand(s.argv, s.environment, s.folder)
	var copies sync.WaitGroup
	if s.tty {
		err = c.startTerminal(command, &copies)
	} else {
		err = c.startPipes(command, &copies)
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	c.process, c.started = command.Process, time.Now()
	go func() {
		state, err := command.Process.Wait()
		c.finished = time.Now()
		// When the first process of a container exits, all its other processes are killed, too.
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		copies.Wait()
		c.exitCode = exitCodeOf(state, err)
		c.output.close()
		_ = log.Close()
		if c.stdin != nil {
			_ = c.stdin.Close()
		}
		if c.terminal != nil {
			_ = c.terminal.Close()
		}
		close(c.done)
	}()
	return c, nil
}

func (c *container) startTerminal(command *exec.Cmd, copies *sync.WaitGroup) error {
	terminal, err := startOnTerminal(command)
	if err != nil {
		return err
	}
	c.terminal = terminal
	if c.spec.stdin {
		c.stdin = terminal
	}
	copies.Go(func() { _, _ = io.Copy(c.output.stream("stdout"), terminal) })
	return nil
}

func (c *container) startPipes(command *exec.Cmd, copies *sync.WaitGroup) error {
	stdout, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := command.StderrPipe()
	if err != nil {
		return err
	}
	if c.spec.stdin {
		if c.stdin, err = command.StdinPipe(); err != nil {
			return err
		}
	}
	if err := command.Start(); err != nil {
		return err
	}
	for name, pipe := range map[string]io.ReadCloser{"stdout": stdout, "stderr": stderr} {
		copies.Go(func() {
			_, _ = io.Copy(c.output.stream(name), pipe)
			_ = pipe.Close()
		})
	}
	return nil
}

// attach connects a client to the running process: it copies the client's input to the process, and the output of the
// process to the client, until the process exits.
func (c *container) attach(in io.Reader, stdout, stderr io.WriteCloser, resize <-chan remotecommand.TerminalSize) error {
	// Subscribes to the output before it copies input, so that the client gets the response to its first byte.
	gone := c.output.join(stdout, stderr)
	defer c.output.leave(gone)
	if c.terminal != nil {
		go followSize(c.terminal, resize)
	}
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if in == nil {
			return
		}
		if c.stdin != nil {
			c.feed(in)
		}
		// Discards input that the process did not read, so that the client can send all its input.
		_, _ = io.Copy(io.Discard, in)
	}()
	select {
	case <-c.done:
		linger(fed)
	case <-gone.failed:
	}
	return nil
}

// lingerTime is the maximum time for which a session stays open after its process has exited.
const lingerTime = 200 * time.Millisecond

// linger waits until the client's input has ended, for at most lingerTime. A real container runtime notices the exit of
// a process after a similar delay. Without the delay, the connection could close while the client is still sending.
// Proxies on the path drop output if they cannot deliver input.
func linger(inputEnded <-chan struct{}) {
	select {
	case <-inputEnded:
	case <-time.After(lingerTime):
	}
}

// feed copies the input of one client. A container with `stdinOnce` gets the end of this input, and then accepts no
// input of other clients.
func (c *container) feed(in io.Reader) {
	_, _ = io.Copy(c.stdin, in)
	if !c.spec.stdinOnce || c.terminal != nil {
		return
	}
	c.stdinMu.Lock()
	defer c.stdinMu.Unlock()
	_ = c.stdin.Close()
}

// stop sends SIGTERM to the process group of the container, and SIGKILL after the grace period.
func (c *container) stop(grace time.Duration) {
	_ = syscall.Kill(-c.process.Pid, syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(grace):
	}
	_ = syscall.Kill(-c.process.Pid, syscall.SIGKILL)
	<-c.done
}

func newCommand(argv, environment []string, folder string) *exec.Cmd {
	command := exec.Command(argv[0], argv[1:]...)
	command.Env, command.Dir = environment, folder
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	return command
}

func startOnTerminal(command *exec.Cmd) (*os.File, error) {
	return pty.StartWithAttrs(command, nil, &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL})
}

func followSize(terminal *os.File, resize <-chan remotecommand.TerminalSize) {
	for size := range resize {
		_ = pty.Setsize(terminal, &pty.Winsize{Cols: size.Width, Rows: size.Height})
	}
}

// exitCodeOf returns the exit code that a container runtime reports: 128 plus the signal number if a signal killed the
// process.
func exitCodeOf(state *os.ProcessState, err error) int {
	if err != nil {
		return 128
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// broadcast copies the output of a container to its log and to all attached clients. A client that does not read blocks
// the container, as with a real runtime. A client whose connection fails is removed.
type broadcast struct {
	mu      sync.Mutex
	log     io.Writer
	clients map[*client]struct{}
	closed  bool
}

type client struct {
	stdout, stderr io.WriteCloser
	failed         chan struct{}
	once           sync.Once
}

func newBroadcast(log io.Writer) *broadcast {
	return &broadcast{log: log, clients: map[*client]struct{}{}}
}

func (b *broadcast) join(stdout, stderr io.WriteCloser) *client {
	b.mu.Lock()
	defer b.mu.Unlock()
	joined := &client{stdout: stdout, stderr: stderr, failed: make(chan struct{})}
	b.clients[joined] = struct{}{}
	return joined
}

func (b *broadcast) leave(c *client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.clients, c)
}

func (b *broadcast) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

func (b *broadcast) stream(name string) io.Writer {
	return &outputStream{owner: b, name: name}
}

type outputStream struct {
	owner *broadcast
	name  string
}

// maxLogLineBytes is the length at which container runtimes split a long line.
const maxLogLineBytes = 16 * 1024

func (s *outputStream) Write(p []byte) (int, error) {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	s.writeLog(p)
	for c := range s.owner.clients {
		w := c.stdout
		if s.name == "stderr" {
			w = c.stderr
		}
		if w == nil {
			continue
		}
		if _, err := w.Write(p); err != nil {
			delete(s.owner.clients, c)
			c.once.Do(func() { close(c.failed) })
		}
	}
	return len(p), nil
}

// writeLog writes lines in the log format of the container runtime interface: time, stream, F (full) or P (partial),
// text. Output without a line feed is written immediately as a partial line, so that `logs -f` shows a prompt.
func (s *outputStream) writeLog(p []byte) {
	for len(p) > 0 {
		tag, size := "P", min(len(p), maxLogLineBytes)
		if end := bytes.IndexByte(p[:size], '\n'); end >= 0 {
			tag, size = "F", end
		}
		_, _ = fmt.Fprintf(s.owner.log, "%s %s %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), s.name, tag, p[:size])
		p = p[size:]
		if tag == "F" {
			p = p[1:]
		}
	}
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}
