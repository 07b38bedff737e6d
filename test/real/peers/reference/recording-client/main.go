// Command recording-client runs the reference's own recording client. `upload` and `event` send standard input to a
// recorder, and print one JSON object with the result.
//
//	recording-client upload [flags] < session.cast
//	recording-client event  [flags] < event.json
//	recording-client decode header|event|rules < lines.ndjson
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/proxy"
	"tailscale.com/sessionrecording"
)

const usage = `usage:
  recording-client upload -addr IP:PORT[,IP:PORT…] [-protocol auto|v1] [-chunk BYTES] [-delay DURATION]
                          [-abort-after BYTES] [-hold DURATION] [-socks5 HOST:PORT] < session.cast
  recording-client event  -addr IP:PORT [-socks5 HOST:PORT] < event.json
  recording-client decode header|event|rules < lines.ndjson
`

// uploadResult is the output line of `upload` and `event`.
type uploadResult struct {
	// Protocol is the protocol that the client used: "v1", "v2" or "event".
	Protocol string `json:"protocol"`
	// Attempts has one element for each recorder address tried, in order.
	Attempts []attempt `json:"attempts"`
	// Sent is the number of bytes of the recording that the client accepted.
	Sent int64 `json:"sent"`
	// Acks are the acknowledgement values in the order in which they arrived (v2 only).
	Acks []int64 `json:"acks"`
	// FirstAckMillis is the time from the start of the upload to the first acknowledgement; -1 without acknowledgements.
	FirstAckMillis int64 `json:"firstAckMillis"`
	// Error is empty if the reference's client reports success.
	Error string `json:"error"`
	// Stage is the step that failed: "connect", "write", "finish" or, for events, "unsupported". Empty after success.
	Stage string `json:"stage"`
	// Millis is the total duration in milliseconds.
	Millis int64 `json:"millis"`
}

type attempt struct {
	Recorder string `json:"recorder"`
	Failure  string `json:"failure"`
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	var err error
	switch os.Args[1] {
	case "upload":
		err = upload(os.Args[2:])
	case "event":
		err = sendEvent(os.Args[2:])
	case "decode":
		err = decode(os.Args[2:], os.Stdin, os.Stdout)
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "recording-client:", err)
		os.Exit(1)
	}
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func dialer(socks5 string) (dialFunc, error) {
	if socks5 == "" {
		var d net.Dialer
		return d.DialContext, nil
	}
	d, err := proxy.SOCKS5("tcp", socks5, nil, proxy.Direct)
	if err != nil {
		return nil, err
	}
	withContext, ok := d.(proxy.ContextDialer)
	if !ok {
		return nil, errors.New("the SOCKS dialer takes no context")
	}
	return withContext.DialContext, nil
}

func parseAddresses(list string) ([]netip.AddrPort, error) {
	var addresses []netip.AddrPort
	for text := range strings.SplitSeq(list, ",") {
		address, err := netip.ParseAddrPort(text)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

func upload(args []string) error {
	flags := flag.NewFlagSet("upload", flag.ExitOnError)
	addr := flags.String("addr", "", "recorder addresses, comma separated, tried in order")
	protocol := flags.String("protocol", "auto", "auto: as the client decides; v1: make the probe for v2 fail")
	chunk := flags.Int("chunk", 32*1024, "bytes for each write")
	delay := flags.Duration("delay", 0, "pause after each write")
	hold := flags.Duration("hold", 0, "pause before the end of the upload")
	abortAfter := flags.Int64("abort-after", -1, "end the upload with an error after this many bytes")
	socks5 := flags.String("socks5", "", "dial through this SOCKS5 proxy (of a tailscaled)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	addresses, err := parseAddresses(*addr)
	if err != nil {
		return err
	}
	dial, err := dialer(*socks5)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	tap := newTap(*protocol == "v1")
	started := time.Now()
	result := uploadResult{FirstAckMillis: -1, Acks: []int64{}, Attempts: []attempt{}}
	w, attempts, done, err := sessionrecording.ConnectToRecorder(context.Background(), addresses, tap.wrap(dial))
	for _, a := range attempts {
		result.Attempts = append(result.Attempts, attempt{Recorder: a.Recorder.String(), Failure: a.FailureMessage})
	}
	if err != nil {
		result.Stage, result.Error = "connect", err.Error()
		return report(&result, tap, started)
	}
	pace := pace{chunk: *chunk, delay: *delay, hold: *hold, abortAfter: *abortAfter}
	result.Sent, err = pace.send(w, body)
	if err != nil {
		result.Stage, result.Error = "write", err.Error()
	}
	if err := <-done; err != nil {
		// The recorder's error explains more than the error "write on a closed pipe".
		result.Stage, result.Error = "finish", err.Error()
	}
	return report(&result, tap, started)
}

// pace defines the chunk size, the pauses and the end of an upload.
type pace struct {
	chunk       int
	delay, hold time.Duration
	abortAfter  int64
}

var errAborted = errors.New("aborted on purpose")

func (p pace) send(w io.WriteCloser, body []byte) (sent int64, err error) {
	for len(body) > 0 {
		if p.abortAfter >= 0 && sent >= p.abortAfter {
			return sent, abort(w)
		}
		size := min(p.chunk, len(body))
		if p.abortAfter >= 0 {
			size = int(min(int64(size), p.abortAfter-sent))
		}
		n, err := w.Write(body[:size])
		sent += int64(n)
		if err != nil {
			return sent, err
		}
		body = body[size:]
		time.Sleep(p.delay)
	}
	time.Sleep(p.hold)
	if p.abortAfter >= 0 {
		return sent, abort(w)
	}
	return sent, w.Close()
}

// abort ends the request body with an error, like a client whose session failed. The recorder gets a reset stream (v2),
// or a connection that ends inside a chunked body (v1), but never a normal end.
func abort(w io.WriteCloser) error {
	if pipe, ok := w.(*io.PipeWriter); ok {
		return errors.Join(errAborted, pipe.CloseWithError(errAborted))
	}
	return errors.New("the client's writer cannot be aborted")
}

func report(result *uploadResult, tap *tap, started time.Time) error {
	tap.finish(result, started)
	result.Millis = time.Since(started).Milliseconds()
	return json.NewEncoder(os.Stdout).Encode(result)
}

func sendEvent(args []string) error {
	flags := flag.NewFlagSet("event", flag.ExitOnError)
	addr := flags.String("addr", "", "recorder address")
	socks5 := flags.String("socks5", "", "dial through this SOCKS5 proxy (of a tailscaled)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	address, err := netip.ParseAddrPort(*addr)
	if err != nil {
		return err
	}
	dial, err := dialer(*socks5)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	started := time.Now()
	result := uploadResult{
		Protocol: "event", FirstAckMillis: -1, Acks: []int64{},
		Attempts: []attempt{{Recorder: address.String()}}, Sent: int64(len(body)),
	}
	if err := sessionrecording.SendEvent(address, strings.NewReader(string(body)), dial); err != nil {
		result.Stage, result.Error = "finish", err.Error()
		var unsupported sessionrecording.EventAPINotSupportedErr
		if errors.As(err, &unsupported) {
			result.Stage = "unsupported"
		}
	}
	result.Millis = time.Since(started).Milliseconds()
	return json.NewEncoder(os.Stdout).Encode(result)
}
