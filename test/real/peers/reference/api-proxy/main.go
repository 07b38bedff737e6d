// Command api-proxy runs the reference's API server proxy, unmodified, as a node of a tailnet. Tests compare the
// behaviour and speed of tailcast's gateway with this proxy. A wrapper around the proxy's LocalAPI client works around
// two limits of headscale. It returns certificates from files, because headscale issues none. It renames one capability
// in whois responses, because headscale rejects a policy with the older name of the Kubernetes capability.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/tools/clientcmd"
	apiproxy "tailscale.com/k8s-operator/api-proxy"
	"tailscale.com/kube/kubetypes"
	"tailscale.com/tsnet"
)

type options struct {
	kubeconfig, mode, loginServer, authKeyFile, hostname, stateDir, certificate, key, legacyName string
	https                                                                                        bool
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server, and as whom")
	flag.StringVar(&o.mode, "mode", "auth", "auth or noauth")
	flag.StringVar(&o.loginServer, "login-server", "", "control server")
	flag.StringVar(&o.authKeyFile, "auth-key-file", "", "file with a pre-authentication key")
	flag.StringVar(&o.hostname, "hostname", "reference-proxy", "name in the tailnet")
	flag.StringVar(&o.stateDir, "state", "", "state folder")
	flag.StringVar(&o.certificate, "certificate", "", "certificate chain (PEM) for https")
	flag.StringVar(&o.key, "key", "", "private key (PEM) for https")
	flag.StringVar(&o.legacyName, "legacy-name", "", "capability of the policy that becomes the older Kubernetes capability")
	flag.BoolVar(&o.https, "https", true, "true: TLS on port 443 of the node; false: PROXY protocol on localhost:80")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "api-proxy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	authKey, err := os.ReadFile(o.authKeyFile)
	if err != nil {
		return err
	}
	config := zap.NewProductionConfig()
	config.Level = zap.NewAtomicLevelAt(zapcore.InfoLevel)
	logger, err := config.Build()
	if err != nil {
		return err
	}
	log := logger.Sugar()
	node := &tsnet.Server{
		Dir: o.stateDir, Hostname: o.hostname, ControlURL: o.loginServer,
		AuthKey: strings.TrimSpace(string(authKey)), UserLogf: log.Infof,
	}
	defer node.Close()
	// Must precede all calls of the LocalAPI client, because the client keeps the transport of its first call.
	if err := wrapLocalAPI(node, o); err != nil {
		return err
	}
	status, err := node.Up(ctx)
	if err != nil {
		return err
	}
	restConfig, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	mode := kubetypes.APIServerProxyModeAuth
	if o.mode == "noauth" {
		mode = kubetypes.APIServerProxyModeNoAuth
	}
	proxy, err := apiproxy.NewAPIServerProxy(log, restConfig, node, mode, o.https)
	if err != nil {
		return err
	}
	ready, err := json.Marshal(map[string]any{
		"addresses": status.TailscaleIPs, "name": strings.TrimSuffix(status.Self.DNSName, "."), "https": o.https,
	})
	if err != nil {
		return err
	}
	fmt.Println(string(ready))
	return proxy.Run(ctx)
}

// wrapLocalAPI replaces the transport of the node's LocalAPI client. All calls except certificates and whois pass
// unchanged.
func wrapLocalAPI(node *tsnet.Server, o options) error {
	if !o.https {
		return nil
	}
	certificate, err := os.ReadFile(o.certificate)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(o.key)
	if err != nil {
		return err
	}
	client, err := node.LocalClient()
	if err != nil {
		return err
	}
	if client.Dial == nil {
		return errors.New("the node's LocalAPI client has no dial function of its own")
	}
	dial := client.Dial
	client.Transport = &localAPITransport{
		pair:       string(key) + string(certificate),
		legacyName: o.legacyName,
		next: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return dial(ctx, network, address)
			},
		},
	}
	return nil
}

type localAPITransport struct {
	pair, legacyName string
	next             http.RoundTripper
}

func (t *localAPITransport) RoundTrip(request *http.Request) (*http.Response, error) {
	switch {
	case strings.HasPrefix(request.URL.Path, "/localapi/v0/cert/"):
		return &http.Response{
			StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {"text/plain"}}, ContentLength: int64(len(t.pair)),
			Body: io.NopCloser(strings.NewReader(t.pair)), Request: request,
		}, nil
	case request.URL.Path == "/localapi/v0/whois" && t.legacyName != "":
		return t.renamed(request)
	}
	return t.next.RoundTrip(request)
}

// renamed returns a whois response with the older name of the Kubernetes capability instead of legacyName.
func (t *localAPITransport) renamed(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	body = bytes.ReplaceAll(body, []byte(t.legacyName), []byte("https://tailscale.com/cap/kubernetes"))
	response.Body = io.NopCloser(bytes.NewReader(body))
	response.ContentLength = int64(len(body))
	response.Header.Del("Content-Length")
	return response, nil
}
