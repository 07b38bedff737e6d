package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/logs"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// server is the API of the kubelet. As on a real node, streams pass two servers: the kubelet gets a one-time URL from
// the streaming server of the container runtime, and forwards the upgrade to this URL. If webSockets is set, the
// kubelet translates WebSocket streams.
type server struct {
	manager    *podManager
	webSockets bool
	streams    streaming.Server
}

func newServer(manager *podManager, o options) (*http.Server, error) {
	clientCA, err := os.ReadFile(o.clientCA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(clientCA) {
		return nil, errors.New("the client CA file holds no certificate")
	}
	streams, err := startStreaming(manager)
	if err != nil {
		return nil, err
	}
	s := &server{manager: manager, webSockets: o.webSockets, streams: streams}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", s.exec)
	mux.HandleFunc("/exec/{namespace}/{pod}/{uid}/{container}", s.exec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", s.attach)
	mux.HandleFunc("/attach/{namespace}/{pod}/{uid}/{container}", s.attach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", s.portForward)
	mux.HandleFunc("/portForward/{namespace}/{pod}/{uid}", s.portForward)
	mux.HandleFunc("POST /run/{namespace}/{pod}/{container}", s.run)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.logs)
	mux.HandleFunc("GET /pods", s.pods)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	return &http.Server{
		Handler: mux,
		// Accepts only clients with a certificate of clientCA, which also issued the API server's client certificate.
		TLSConfig:         &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, NextProtos: []string{"http/1.1"}},
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ReadHeaderTimeout: time.Minute,
	}, nil
}

// startStreaming starts the streaming server of the container runtime on its own listener.
func startStreaming(manager *podManager) (streaming.Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	streams, err := streaming.NewServer(config, manager)
	if err != nil {
		return nil, err
	}
	front := &http.Server{Handler: streams, ReadHeaderTimeout: time.Minute}
	go func() { _ = front.Serve(listener) }()
	return streams, nil
}

func (s *server) exec(w http.ResponseWriter, r *http.Request) {
	s.interactive(w, r, func(id string, o *remotecommand.Options) (string, error) {
		response, err := s.streams.GetExec(&runtimeapi.ExecRequest{
			ContainerId: id, Cmd: r.URL.Query()["command"], Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY,
		})
		return response.GetUrl(), err
	})
}

func (s *server) attach(w http.ResponseWriter, r *http.Request) {
	s.interactive(w, r, func(id string, o *remotecommand.Options) (string, error) {
		response, err := s.streams.GetAttach(&runtimeapi.AttachRequest{
			ContainerId: id, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY,
		})
		return response.GetUrl(), err
	})
}

func (s *server) interactive(w http.ResponseWriter, r *http.Request, address func(id string, o *remotecommand.Options) (string, error)) {
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c, err := s.containerOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	target, err := streamURL(address(c.id, o))
	if err != nil {
		_ = streaming.WriteError(err, w)
		return
	}
	var handler http.Handler = upgradeHandler(target)
	if s.webSockets && wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		options := translator.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY}
		handler = translator.NewStreamTranslatorHandler(target, nil, 0, options)
	}
	handler.ServeHTTP(w, r)
}

func (s *server) portForward(w http.ResponseWriter, r *http.Request) {
	tunnel := s.webSockets && wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
	ports := &portforward.V4Options{}
	if !tunnel {
		var err error
		if ports, err = portforward.NewV4Options(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	pod, err := s.manager.pod(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	response, err := s.streams.GetPortForward(&runtimeapi.PortForwardRequest{PodSandboxId: string(pod.UID), Port: ports.Ports})
	target, err := streamURL(response.GetUrl(), err)
	if err != nil {
		_ = streaming.WriteError(err, w)
		return
	}
	var handler http.Handler = upgradeHandler(target)
	if tunnel {
		handler = translator.NewTunnelingHandler(handler)
	}
	handler.ServeHTTP(w, r)
}

// run executes a command without streams, the oldest way of the kubelet. The response body is the output.
func (s *server) run(w http.ResponseWriter, r *http.Request) {
	c, err := s.containerOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	argv := strings.Fields(r.FormValue("cmd"))
	if len(argv) == 0 {
		http.Error(w, "no command", http.StatusBadRequest)
		return
	}
	output, err := newCommand(argv, c.spec.environment, c.spec.folder).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(output)
}

func (s *server) pods(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(corev1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: s.manager.list(),
	})
}

func (s *server) logs(w http.ResponseWriter, r *http.Request) {
	o, previous, err := logOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	path, id, err := s.manager.logOf(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"), previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	flusher := flushing{w}
	_ = http.NewResponseController(w).Flush()
	if err := logs.ReadLogs(r.Context(), path, id, o, statusOnly{manager: s.manager}, flusher, flusher); err != nil {
		_, _ = fmt.Fprintln(w, err)
	}
}

func logOptions(query url.Values) (*logs.LogOptions, bool, error) {
	o := &logs.LogOptions{Follow: query.Get("follow") == "true", Timestamp: query.Get("timestamps") == "true"}
	var sinceSeconds *int64
	numbers := map[string]**int64{"tailLines": &o.TailLines, "limitBytes": &o.LimitBytes, "sinceSeconds": &sinceSeconds}
	for name, target := range numbers {
		if text := query.Get(name); text != "" {
			number, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, false, err
			}
			*target = &number
		}
	}
	if sinceSeconds != nil {
		o.Since = time.Now().Add(-time.Duration(*sinceSeconds) * time.Second)
	}
	if text := query.Get("sinceTime"); text != "" {
		var err error
		if o.Since, err = time.Parse(time.RFC3339, text); err != nil {
			return nil, false, err
		}
	}
	return o, query.Get("previous") == "true", nil
}

// statusOnly implements the only method of a container runtime that the log reader calls: the state of a container.
type statusOnly struct {
	internalapi.RuntimeService
	manager *podManager
}

func (s statusOnly) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	state := runtimeapi.ContainerState_CONTAINER_EXITED
	if c, err := s.manager.container(id); err == nil {
		select {
		case <-c.done:
		default:
			state = runtimeapi.ContainerState_CONTAINER_RUNNING
		}
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: id, State: state}}, nil
}

type flushing struct{ w http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = http.NewResponseController(f.w).Flush()
	}
	return n, err
}

func (s *server) containerOf(r *http.Request) (*container, error) {
	pod, err := s.manager.pod(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid"))
	if err != nil {
		return nil, err
	}
	return s.manager.containerNamed(pod.UID, r.PathValue("container"))
}

func streamURL(text string, err error) (*url.URL, error) {
	if err != nil {
		return nil, err
	}
	return url.Parse(text)
}

func upgradeHandler(target *url.URL) *proxy.UpgradeAwareHandler {
	return proxy.NewUpgradeAwareHandler(target, nil, false, true, responder{})
}

type responder struct{}

func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}
