// Command oracle answers what the programs on the other side make of some bytes, by running their own code.
//
//	oracle MODE
//
// It reads one JSON object per line on standard input and writes one per line on standard output, in the same order.
// Bytes are base64. It ends with its input.
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

// answer turns a function over typed questions into one over lines.
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
		// Whoever asks one at a time must not wait for a full buffer.
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// pair is a member of a map. Maps are answered as lists, because some versions of V8 misread object keys with escapes
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

// latin1 gives each byte one code unit, so that JSON carries bytes that are not UTF-8.
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
