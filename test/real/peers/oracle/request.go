package main

import (
	"bufio"
	"net/http"
	"strings"

	metav1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
)

var factory = &request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// target is a request line. Each character stands for one byte.
type target struct {
	Method string `json:"method"`
	Target string `json:"target"`
}

type requestAnswer struct {
	// Bad is true if net/http rejects the request line.
	Bad   bool                 `json:"bad,omitempty"`
	Error string               `json:"error,omitempty"`
	Path  string               `json:"path"`
	Query []pair[[]string]     `json:"query"`
	Info  *request.RequestInfo `json:"info,omitempty"`
}

// parse parses the request with net/http, as the API server does.
func (t target) parse() (*http.Request, error) {
	raw := t.Method + " " + fromLatin1(t.Target) + " HTTP/1.1\r\nHost: h\r\n\r\n"
	return http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
}

func requestInfo(question target) requestAnswer {
	parsed, err := question.parse()
	if err != nil {
		return requestAnswer{Bad: true}
	}
	info, err := factory.NewRequestInfo(parsed)
	return requestAnswer{Error: text(err), Path: parsed.URL.Path, Query: pairs(parsed.URL.Query()), Info: info}
}

type streams struct {
	Container string   `json:"container"`
	Command   []string `json:"command"`
	Stdin     bool     `json:"stdin"`
	Stdout    bool     `json:"stdout"`
	Stderr    bool     `json:"stderr"`
	TTY       bool     `json:"tty"`
}

type execAnswer struct {
	Bad    bool    `json:"bad,omitempty"`
	Error  string  `json:"error,omitempty"`
	Exec   streams `json:"exec"`
	Attach streams `json:"attach"`
}

// execOptions decodes a query as the handlers of pods/exec and pods/attach do, including defaults and conversion.
func execOptions(question target) execAnswer {
	parsed, err := question.parse()
	if err != nil {
		return execAnswer{Bad: true}
	}
	query := parsed.URL.Query()
	var exec api.PodExecOptions
	var attach api.PodAttachOptions
	if err := legacyscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &exec); err != nil {
		return execAnswer{Error: err.Error()}
	}
	if err := legacyscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &attach); err != nil {
		return execAnswer{Error: err.Error()}
	}
	return execAnswer{
		Exec:   streams{exec.Container, exec.Command, exec.Stdin, exec.Stdout, exec.Stderr, exec.TTY},
		Attach: streams{attach.Container, nil, attach.Stdin, attach.Stdout, attach.Stderr, attach.TTY},
	}
}
