package main

import (
	"bytes"
	"encoding/json"

	"k8s.io/client-go/tools/remotecommand"
)

type size struct {
	Columns uint16 `json:"columns"`
	Rows    uint16 `json:"rows"`
}

type sizes struct {
	Sizes []size `json:"sizes"`
	Error string `json:"error,omitempty"`
}

// resizeDecode decodes a stream of terminal sizes as the kubelet does: with one decoder for the complete stream, until
// the first error.
func resizeDecode(question wireBytes) sizes {
	decoder := json.NewDecoder(bytes.NewReader(question.Bytes))
	answer := sizes{Sizes: []size{}}
	for {
		read := remotecommand.TerminalSize{}
		if err := decoder.Decode(&read); err != nil {
			answer.Error = err.Error()
			return answer
		}
		answer.Sizes = append(answer.Sizes, size{read.Width, read.Height})
	}
}
