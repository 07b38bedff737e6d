package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"tailscale.com/kube/kubetypes"
	"tailscale.com/sessionrecording"
	"tailscale.com/tailcfg"
)

// maxLineBytes is the maximum length of an input line of decode. An event may contain a request body.
const maxLineBytes = 16 << 20

// decoded is one output line: the value that the reference's Go types decode from an input line.
type decoded struct {
	Value any    `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
}

// decode decodes one JSON value per line into the reference's types, and prints the value as these types encode it.
// Tests compare tailcast's encoders and parsers with the output.
func decode(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("decode takes one argument: header, event or rules")
	}
	var convert func(line []byte) (any, error)
	switch args[0] {
	case "header":
		convert = strictly[sessionrecording.CastHeader]
	case "event":
		convert = strictly[sessionrecording.Event]
	case "rules":
		convert = rules
	default:
		return fmt.Errorf("unknown kind %q", args[0])
	}
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, maxLineBytes)
	encoder := json.NewEncoder(out)
	for scanner.Scan() {
		var line decoded
		value, err := convert(scanner.Bytes())
		if err != nil {
			line.Error = err.Error()
		} else {
			line.Value = value
		}
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return scanner.Err()
}

func strictly[T any](line []byte) (any, error) {
	var value T
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return value, nil
}

// rules decodes a complete capability map, as whois returns it.
func rules(line []byte) (any, error) {
	var capabilities tailcfg.PeerCapMap
	if err := json.Unmarshal(line, &capabilities); err != nil {
		return nil, err
	}
	return tailcfg.UnmarshalCapJSON[kubetypes.KubernetesCapRule](capabilities, tailcfg.PeerCapabilityKubernetes)
}
