// The peer of the gateway benchmark: httputil.ReverseProxy with TLS on both sides, HTTP/1.1 only, a pool of idle
// connections that is large enough, and every write flushed at once.
//
//	reverse-proxy -cert F -key F -ca F -upstream https://localhost:PORT
//
// Prints the port it listens on.
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
	flag.Parse()

	target, err := url.Parse(*upstream)
	check(err)
	pem, err := os.ReadFile(*ca)
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)

	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
			r.Out.Header.Set("Authorization", "Bearer bench")
			r.Out.Header.Set("Impersonate-User", "alice@example.com")
			r.Out.Header.Set("Impersonate-Group", "devs")
		},
		FlushInterval: -1,
		Transport: &http.Transport{
			TLSClientConfig:     &tls.Config{RootCAs: roots, ClientSessionCache: tls.NewLRUClientSessionCache(64)},
			TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxIdleConns:        0,
			MaxIdleConnsPerHost: 10000,
			IdleConnTimeout:     90 * time.Second,
			DisableCompression:  true,
		},
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	server := &http.Server{
		Handler:      proxy,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     log.New(os.Stderr, "", 0),
	}
	check(server.ServeTLS(listener, *cert, *key))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
