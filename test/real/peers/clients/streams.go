package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
)

const bodyBytes = 8 << 20

// execute runs a command with input and a command that fails, over `spdy` or `websocket`.
func execute(ctx context.Context, c *client, args []string) (any, error) {
	if len(args) != 3 {
		return nil, errArguments
	}
	transport, namespace, pod := args[0], args[1], args[2]
	body := make([]byte, bodyBytes)
	for index := range body {
		body[index] = byte(index * 7 >> 3)
	}
	var echoed bytes.Buffer
	if err := c.stream(ctx, transport, namespace, pod, []string{"cat"}, remotecommand.StreamOptions{
		Stdin: bytes.NewReader(body), Stdout: &echoed}); err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	err := c.stream(ctx, transport, namespace, pod, []string{"sh", "-c", "echo out; echo err >&2; exit 5"},
		remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})
	var exit utilexec.CodeExitError
	if !errors.As(err, &exit) {
		return nil, fmt.Errorf("no exit code but %v", err)
	}
	return map[string]any{"equal": bytes.Equal(echoed.Bytes(), body), "stdout": stdout.String(), "stderr": stderr.String(), "code": exit.Code}, nil
}

func (c *client) stream(ctx context.Context, transport, namespace, pod string, command []string, streams remotecommand.StreamOptions) error {
	request := c.set.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdin: streams.Stdin != nil, Stdout: true, Stderr: streams.Stderr != nil}, scheme.ParameterCodec)
	var executor remotecommand.Executor
	var err error
	if transport == "websocket" {
		executor, err = remotecommand.NewWebSocketExecutor(c.config, http.MethodGet, request.URL().String())
	} else {
		executor, err = remotecommand.NewSPDYExecutor(c.config, http.MethodPost, request.URL())
	}
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, streams)
}

// forward sends a body to a port of the pod. The server at this port responds with the SHA-256 of its input after the
// end of the input.
func forward(ctx context.Context, c *client, args []string) (any, error) {
	if len(args) != 4 {
		return nil, errArguments
	}
	transport, namespace, pod, port := args[0], args[1], args[2], args[3]
	address := c.set.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	roundTripper, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return nil, err
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, address)
	if transport == "websocket" {
		if dialer, err = portforward.NewSPDYOverWebsocketDialer(address, c.config); err != nil {
			return nil, err
		}
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:" + port}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, err
	}
	failed := make(chan error, 1)
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return nil, err
	}
	body := bytes.Repeat([]byte("port-forward "), 300_000)
	answer, err := exchange(fmt.Sprintf("127.0.0.1:%d", ports[0].Local), body)
	if err != nil {
		return nil, err
	}
	return map[string]any{"equal": answer == fmt.Sprintf("%x", sha256.Sum256(body))}, nil
}

func exchange(address string, body []byte) (string, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if _, err := connection.Write(body); err != nil {
		return "", err
	}
	if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(connection)
	return strings.TrimSpace(string(answer)), err
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Millisecond):
		return nil
	}
}
