package main

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	gorilla "github.com/gorilla/websocket"
	xnet "golang.org/x/net/websocket"
)

// maxFrameBytes is the maximum size of a frame in Kubernetes' wsstream package.
const maxFrameBytes = 32 << 20

type webSocketQuestion struct {
	// Peer selects a library: "x-net" is used by API servers and kubelets, "gorilla" by kubectl and by tunnels.
	Peer string `json:"peer"`
	// Server is true if the peer is a server, which reads masked frames and writes unmasked frames.
	Server   bool      `json:"server"`
	Bytes    []byte    `json:"bytes"`
	Messages []message `json:"messages"`
	// WriteBuffer is the size of gorilla's write buffer. With a small buffer, gorilla writes fragments.
	WriteBuffer int `json:"writeBuffer"`
}

type message struct {
	Opcode int    `json:"opcode"`
	Data   []byte `json:"data"`
}

type messages struct {
	Messages []message `json:"messages"`
	Error    string    `json:"error,omitempty"`
}

const key = "dGhlIHNhbXBsZSBub25jZQ=="

func webSocketDecode(question webSocketQuestion) messages {
	conn := &fakeConn{input: bytes.NewReader(question.Bytes)}
	if question.Peer == "x-net" {
		return decodeXNet(conn)
	}
	peer := dialGorilla(conn, question.Server, 0)
	answer := messages{Messages: []message{}}
	keep := func(opcode int) func(string) error {
		return func(data string) error {
			answer.Messages = append(answer.Messages, message{opcode, []byte(data)})
			return nil
		}
	}
	peer.SetPingHandler(keep(gorilla.PingMessage))
	peer.SetPongHandler(keep(gorilla.PongMessage))
	for {
		opcode, data, err := peer.ReadMessage()
		var closed *gorilla.CloseError
		if errors.As(err, &closed) && closed.Code != gorilla.CloseAbnormalClosure {
			answer.Messages = append(answer.Messages, message{gorilla.CloseMessage, nil})
		}
		if err != nil {
			answer.Error = err.Error()
			return answer
		}
		answer.Messages = append(answer.Messages, message{opcode, data})
	}
}

// decodeXNet receives messages as wsstream does: every data frame is a separate message.
func decodeXNet(conn *fakeConn) messages {
	answer := messages{Messages: []message{}}
	codec := xnet.Codec{Unmarshal: func(data []byte, payloadType byte, v any) error {
		answer.Messages = append(answer.Messages, message{int(payloadType), data})
		return nil
	}}
	server := xnet.Server{Handler: func(peer *xnet.Conn) {
		peer.MaxPayloadBytes = maxFrameBytes
		for {
			if err := codec.Receive(peer, nil); err != nil {
				answer.Error = err.Error()
				return
			}
		}
	}}
	server.ServeHTTP(&hijackable{conn: conn}, upgradeRequest())
	return answer
}

func webSocketEncode(question webSocketQuestion) wireBytes {
	conn := &fakeConn{input: bytes.NewReader(nil)}
	if question.Peer == "x-net" {
		codec := xnet.Codec{Marshal: func(v any) ([]byte, byte, error) {
			m := v.(message)
			return m.Data, byte(m.Opcode), nil
		}}
		server := xnet.Server{Handler: func(peer *xnet.Conn) {
			conn.output.Reset()
			for _, m := range question.Messages {
				if err := codec.Send(peer, m); err != nil {
					panic(err)
				}
			}
			conn.closed = true
		}}
		server.ServeHTTP(&hijackable{conn: conn}, upgradeRequest())
		return wireBytes{conn.output.Bytes()}
	}
	peer := dialGorilla(conn, question.Server, question.WriteBuffer)
	conn.output.Reset()
	for _, m := range question.Messages {
		if err := peer.WriteMessage(m.Opcode, m.Data); err != nil {
			panic(err)
		}
	}
	return wireBytes{conn.output.Bytes()}
}

func upgradeRequest() *http.Request {
	return &http.Request{
		Method: "GET", URL: &url.URL{Path: "/"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "h",
		Header: http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Origin": {"http://h"},
			"Sec-Websocket-Key": {key}, "Sec-Websocket-Version": {"13"},
		},
	}
}

func dialGorilla(conn *fakeConn, server bool, writeBuffer int) *gorilla.Conn {
	if server {
		upgrader := gorilla.Upgrader{WriteBufferSize: writeBuffer, ReadBufferSize: 4096}
		peer, err := upgrader.Upgrade(&hijackable{conn: conn}, upgradeRequest(), nil)
		if err != nil {
			panic(err)
		}
		return peer
	}
	conn.answersRequest = true
	dialer := gorilla.Dialer{
		NetDial:         func(string, string) (net.Conn, error) { return conn, nil },
		WriteBufferSize: writeBuffer, ReadBufferSize: 4096,
	}
	peer, _, err := dialer.Dial("ws://h/", nil)
	if err != nil {
		panic(err)
	}
	return peer
}

// fakeConn is a connection with predefined input, which stores all written bytes.
type fakeConn struct {
	input  *bytes.Reader
	output bytes.Buffer
	closed bool
	// answersRequest is true if the first written bytes are a handshake. Reads then return its response before the
	// input.
	answersRequest bool
	answer         *strings.Reader
}

func (c *fakeConn) Read(p []byte) (int, error) {
	if c.answer != nil && c.answer.Len() > 0 {
		return c.answer.Read(p)
	}
	return c.input.Read(p)
}

func (c *fakeConn) Write(p []byte) (int, error) {
	if c.closed {
		return len(p), nil
	}
	c.output.Write(p)
	if c.answersRequest && c.answer == nil && bytes.HasSuffix(c.output.Bytes(), []byte("\r\n\r\n")) {
		request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(c.output.Bytes())))
		if err != nil {
			return 0, err
		}
		sum := sha1.Sum([]byte(request.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		c.answer = strings.NewReader("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
			"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n")
	}
	return len(p), nil
}

func (c *fakeConn) Close() error                     { return nil }
func (c *fakeConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *fakeConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *fakeConn) SetDeadline(time.Time) error      { return nil }
func (c *fakeConn) SetReadDeadline(time.Time) error  { return nil }
func (c *fakeConn) SetWriteDeadline(time.Time) error { return nil }

type hijackable struct {
	conn   *fakeConn
	header http.Header
}

func (h *hijackable) Header() http.Header {
	if h.header == nil {
		h.header = http.Header{}
	}
	return h.header
}
func (h *hijackable) Write(p []byte) (int, error) { return io.Discard.Write(p) }
func (h *hijackable) WriteHeader(int)             {}
func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}
