package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/moby/spdystream/spdy"
)

// frame is a SPDY frame of any kind. Only the fields of this kind are set.
type frame struct {
	Kind           string         `json:"kind"`
	StreamID       uint32         `json:"streamId,omitempty"`
	AssociatedTo   uint32         `json:"associatedTo,omitempty"`
	Priority       uint8          `json:"priority,omitempty"`
	Fin            bool           `json:"fin,omitempty"`
	Unidirectional bool           `json:"unidirectional,omitempty"`
	Headers        []pair[string] `json:"headers,omitempty"`
	Status         uint32         `json:"status,omitempty"`
	Entries        []setting      `json:"entries,omitempty"`
	ID             uint32         `json:"id,omitempty"`
	Delta          uint32         `json:"delta,omitempty"`
	Payload        []byte         `json:"payload,omitempty"`
}

type setting struct {
	ID    uint32 `json:"id"`
	Flags uint8  `json:"flags"`
	Value uint32 `json:"value"`
}

type wireBytes struct {
	Bytes []byte `json:"bytes"`
}

type frames struct {
	Frames []frame `json:"frames"`
	// Error is empty if the bytes end at the end of a frame.
	Error string `json:"error,omitempty"`
}

func spdyDecode(question wireBytes) frames {
	framer, err := spdy.NewFramer(io.Discard, bytes.NewReader(question.Bytes))
	if err != nil {
		return frames{Error: err.Error()}
	}
	answer := frames{Frames: []frame{}}
	for {
		read, err := framer.ReadFrame()
		if err == io.EOF {
			return answer
		}
		if err != nil {
			answer.Error = err.Error()
			return answer
		}
		answer.Frames = append(answer.Frames, fromSpdy(read))
	}
}

func fromSpdy(read spdy.Frame) frame {
	switch f := read.(type) {
	case *spdy.SynStreamFrame:
		flags := f.CFHeader.Flags
		return frame{
			Kind: "synStream", StreamID: uint32(f.StreamId), AssociatedTo: uint32(f.AssociatedToStreamId),
			Priority: f.Priority, Fin: flags&spdy.ControlFlagFin != 0,
			Unidirectional: flags&spdy.ControlFlagUnidirectional != 0, Headers: joined(f.Headers),
		}
	case *spdy.SynReplyFrame:
		fin := f.CFHeader.Flags&spdy.ControlFlagFin != 0
		return frame{Kind: "synReply", StreamID: uint32(f.StreamId), Fin: fin, Headers: joined(f.Headers)}
	case *spdy.HeadersFrame:
		fin := f.CFHeader.Flags&spdy.ControlFlagFin != 0
		return frame{Kind: "headers", StreamID: uint32(f.StreamId), Fin: fin, Headers: joined(f.Headers)}
	case *spdy.RstStreamFrame:
		return frame{Kind: "rstStream", StreamID: uint32(f.StreamId), Status: uint32(f.Status)}
	case *spdy.SettingsFrame:
		entries := []setting{}
		for _, e := range f.FlagIdValues {
			entries = append(entries, setting{uint32(e.Id), uint8(e.Flag), e.Value})
		}
		return frame{Kind: "settings", Entries: entries}
	case *spdy.PingFrame:
		return frame{Kind: "ping", ID: f.Id}
	case *spdy.GoAwayFrame:
		return frame{Kind: "goaway", StreamID: uint32(f.LastGoodStreamId), Status: uint32(f.Status)}
	case *spdy.WindowUpdateFrame:
		return frame{Kind: "windowUpdate", StreamID: uint32(f.StreamId), Delta: f.DeltaWindowSize}
	case *spdy.DataFrame:
		return frame{Kind: "data", StreamID: uint32(f.StreamId), Fin: f.Flags&spdy.DataFlagFin != 0, Payload: f.Data}
	}
	return frame{Kind: "unknown"}
}

// joined returns the headers with lower-case names, because net/http.Header changes the case of names. Values of the
// same name are joined with NUL, as on the wire.
func joined(headers http.Header) []pair[string] {
	all := map[string]string{}
	for name, values := range headers {
		all[latin1(strings.ToLower(name))] = latin1(strings.Join(values, "\x00"))
	}
	return pairs(all)
}

func spdyEncode(question frames) wireBytes {
	var out bytes.Buffer
	framer, err := spdy.NewFramer(&out, bytes.NewReader(nil))
	if err != nil {
		panic(err)
	}
	for _, f := range question.Frames {
		if err := framer.WriteFrame(toSpdy(f)); err != nil {
			panic(err)
		}
	}
	return wireBytes{out.Bytes()}
}

func toSpdy(f frame) spdy.Frame {
	var flags spdy.ControlFlags
	if f.Fin {
		flags |= spdy.ControlFlagFin
	}
	if f.Unidirectional {
		flags |= spdy.ControlFlagUnidirectional
	}
	header := spdy.ControlFrameHeader{Flags: flags}
	id := spdy.StreamId(f.StreamID)
	switch f.Kind {
	case "synStream":
		return &spdy.SynStreamFrame{
			CFHeader: header, StreamId: id, AssociatedToStreamId: spdy.StreamId(f.AssociatedTo),
			Priority: f.Priority, Headers: split(f.Headers),
		}
	case "synReply":
		return &spdy.SynReplyFrame{CFHeader: header, StreamId: id, Headers: split(f.Headers)}
	case "headers":
		return &spdy.HeadersFrame{CFHeader: header, StreamId: id, Headers: split(f.Headers)}
	case "rstStream":
		return &spdy.RstStreamFrame{StreamId: id, Status: spdy.RstStreamStatus(f.Status)}
	case "settings":
		entries := []spdy.SettingsFlagIdValue{}
		for _, e := range f.Entries {
			entries = append(entries, spdy.SettingsFlagIdValue{
				Flag: spdy.SettingsFlag(e.Flags), Id: spdy.SettingsId(e.ID), Value: e.Value,
			})
		}
		return &spdy.SettingsFrame{FlagIdValues: entries}
	case "ping":
		return &spdy.PingFrame{Id: f.ID}
	case "goaway":
		return &spdy.GoAwayFrame{LastGoodStreamId: id, Status: spdy.GoAwayStatus(f.Status)}
	case "windowUpdate":
		return &spdy.WindowUpdateFrame{StreamId: id, DeltaWindowSize: f.Delta}
	case "data":
		var flags spdy.DataFlags
		if f.Fin {
			flags = spdy.DataFlagFin
		}
		return &spdy.DataFrame{StreamId: id, Flags: flags, Data: f.Payload}
	}
	panic("unknown kind " + f.Kind)
}

func split(headers []pair[string]) http.Header {
	all := http.Header{}
	for _, header := range headers {
		all[fromLatin1(header.Name)] = strings.Split(fromLatin1(header.Value), "\x00")
	}
	return all
}
