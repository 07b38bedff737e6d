// Command reverse-proxy is the proxy with which the benchmarks compare the gateway: httputil.ReverseProxy with TLS on
// both sides and HTTP/1.1 to the upstream. By default, the pool of idle connections is large enough, and every write is
// flushed immediately. With -default, the proxy uses Go's default transport (two idle connections per host), as most
// proxies in Go do. With -h2, it also uses HTTP/2 to the upstream.
//
//	reverse-proxy -cert F -key F -ca F -upstream https://localhost:PORT [-default] [-h2]
//
// The command prints its listening port as JSON.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"
)

func main() {
	cert := flag.String("cert", "", "certificate file")
	key := flag.String("key", "", "key file")
	ca := flag.String("ca", "", "CA of the upstream")
	upstream := flag.String("upstream", "", "URL of the upstream")
	token := flag.String("token", "bench", "credential for the upstream")
	standard := flag.Bool("default", false, "the default transport")
	h2 := flag.Bool("h2", false, "HTTP/2 to the upstream")
	flag.Parse()

	target, err := url.Parse(*upstream)
	check(err)
	pem, err := os.ReadFile(*ca)
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)

	transport := &http.Transport{
		MaxIdleConns:        0,
		MaxIdleConnsPerHost: 10000,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	}
	if *standard {
		transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	if !*standard {
		transport.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(64)
	}
	if *h2 {
		transport.ForceAttemptHTTP2 = true
	} else {
		transport.ForceAttemptHTTP2 = false
		transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
			r.Out.Header.Set("Authorization", "Bearer "+*token)
			r.Out.Header.Set("Impersonate-User", "alice@example.com")
			r.Out.Header.Set("Impersonate-Group", "system:masters")
		},
		FlushInterval: -1,
		Transport:     transport,
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Printf("{\"port\":%d}\n", listener.Addr().(*net.TCPAddr).Port)
	server := &http.Server{Handler: proxy, ErrorLog: log.New(os.Stderr, "", 0)}
	check(server.ServeTLS(listener, *cert, *key))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
