package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// tap observes the connections of the reference's client: their protocol, and the acknowledgements, which the client's
// API does not return.
type tap struct {
	forceV1 bool

	mu    sync.Mutex
	conns []*tappedConn
}

func newTap(forceV1 bool) *tap { return &tap{forceV1: forceV1} }

func (t *tap) wrap(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		tapped := &tappedConn{Conn: conn, refuseHTTP2: t.forceV1}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.conns = append(t.conns, tapped)
		return tapped, nil
	}
}

func (t *tap) finish(result *uploadResult, started time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, conn := range t.conns {
		conn.mu.Lock()
		switch {
		case conn.http2 && conn.uploaded:
			result.Protocol = "v2"
			result.Acks = append(result.Acks, parseAcks(conn.received.Bytes())...)
			if !conn.firstData.IsZero() {
				result.FirstAckMillis = conn.firstData.Sub(started).Milliseconds()
			}
		case !conn.http2 && conn.uploaded:
			result.Protocol = "v1"
		}
		conn.mu.Unlock()
	}
}

// tappedConn copies the bytes that arrive over HTTP/2. With refuseHTTP2, the connection closes at an HTTP/2 preface,
// and the client then uses v1.
type tappedConn struct {
	net.Conn
	refuseHTTP2 bool

	mu        sync.Mutex
	wrote     bool
	http2     bool
	uploaded  bool
	firstData time.Time
	received  bytes.Buffer
}

var errHTTP2Refused = errors.New("HTTP/2 was refused on purpose")

func (c *tappedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if !c.wrote {
		c.wrote = true
		c.http2 = bytes.HasPrefix(p, []byte(http2.ClientPreface[:4]))
	}
	refused := c.http2 && c.refuseHTTP2
	if !c.http2 && bytes.HasPrefix(p, []byte(http.MethodPost+" ")) {
		c.uploaded = true
	}
	c.mu.Unlock()
	if refused {
		c.Conn.Close()
		return 0, errHTTP2Refused
	}
	return c.Conn.Write(p)
}

func (c *tappedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.http2 && n > 0 {
		c.received.Write(p[:n])
		if !c.uploaded && len(dataOf(c.received.Bytes())) > 0 {
			c.uploaded = true
			c.firstData = time.Now()
		}
	}
	return n, err
}

// dataOf returns the payload of all DATA frames in the bytes that an HTTP/2 server sent.
func dataOf(received []byte) []byte {
	framer := http2.NewFramer(io.Discard, bytes.NewReader(received))
	framer.SetMaxReadFrameSize(1 << 24)
	var data []byte
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return data
		}
		if frame, ok := frame.(*http2.DataFrame); ok {
			data = append(data, frame.Data()...)
		}
	}
}

func parseAcks(received []byte) []int64 {
	decoder := json.NewDecoder(bytes.NewReader(dataOf(received)))
	var acks []int64
	for {
		var frame struct {
			Ack   int64  `json:"ack"`
			Error string `json:"error"`
		}
		if decoder.Decode(&frame) != nil {
			return acks
		}
		if frame.Error == "" {
			acks = append(acks, frame.Ack)
		}
	}
}
