// Command oracle decodes and encodes bytes with the code of the peers, such as Kubernetes, kubectl and Tailscale.
//
//	oracle MODE
//
// The command reads one JSON object per line from standard input, and writes one response per line to standard output,
// in the same order. Bytes are encoded as base64. The command exits at the end of its input.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"k8s.io/klog/v2"
)

var modes = map[string]func(line []byte) (any, error){
	"request-info":  answer(requestInfo),
	"exec-options":  answer(execOptions),
	"spdy-decode":   answer(spdyDecode),
	"spdy-encode":   answer(spdyEncode),
	"ws-decode":     answer(webSocketDecode),
	"ws-encode":     answer(webSocketEncode),
	"proxy-header":  answer(proxyHeader),
	"grants":        answer(grants),
	"resize-decode": answer(resizeDecode),
}

// answer returns a function that parses a line of JSON and calls `ask` with the result.
func answer[Question any, Answer any](ask func(Question) Answer) func([]byte) (any, error) {
	return func(line []byte) (any, error) {
		var question Question
		if err := json.Unmarshal(line, &question); err != nil {
			return nil, err
		}
		return ask(question), nil
	}
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 || modes[os.Args[1]] == nil {
		return fmt.Errorf("usage: oracle MODE")
	}
	ask := modes[os.Args[1]]
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return out.Flush()
		}
		if err != nil {
			return err
		}
		reply, err := ask(line)
		if err != nil {
			return err
		}
		if err := encoder.Encode(reply); err != nil {
			return err
		}
		// Flushes if no input is buffered, so that a caller that sends one query at a time gets each response.
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// pair is an entry of a map. Maps are encoded as lists, because some versions of V8 misread object keys with escapes
// (nodejs/node#63785).
type pair[Value any] struct {
	Name  string
	Value Value
}

func (p pair[Value]) MarshalJSON() ([]byte, error) { return json.Marshal([]any{p.Name, p.Value}) }

func (p *pair[Value]) UnmarshalJSON(bytes []byte) error {
	return json.Unmarshal(bytes, &[]any{&p.Name, &p.Value})
}

func pairs[Value any](all map[string]Value) []pair[Value] {
	list := []pair[Value]{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, pair[Value]{name, all[name]})
	}
	return list
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// latin1 converts each byte to one character, so that JSON can contain bytes that are not UTF-8.
func latin1(bytes string) string {
	runes := make([]rune, len(bytes))
	for i := range len(bytes) {
		runes[i] = rune(bytes[i])
	}
	return string(runes)
}

// fromLatin1 is the inverse of latin1.
func fromLatin1(text string) string {
	bytes := make([]byte, 0, len(text))
	for _, r := range text {
		bytes = append(bytes, byte(r))
	}
	return string(bytes)
}
