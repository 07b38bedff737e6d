package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/netip"

	proxyproto "github.com/pires/go-proxyproto"
	"tailscale.com/client/tailscale/apitype"
	"tailscale.com/kube/kubetypes"
	"tailscale.com/tailcfg"
)

type proxyAnswer struct {
	Error string `json:"error,omitempty"`
	// Local is true if the header names no addresses, so that the socket's addresses apply.
	Local           bool   `json:"local,omitempty"`
	Protocol        string `json:"protocol,omitempty"`
	Source          string `json:"source,omitempty"`
	SourcePort      int    `json:"sourcePort,omitempty"`
	Destination     string `json:"destination,omitempty"`
	DestinationPort int    `json:"destinationPort,omitempty"`
	Rest            []byte `json:"rest,omitempty"`
}

func proxyHeader(question wireBytes) proxyAnswer {
	reader := bufio.NewReaderSize(bytes.NewReader(question.Bytes), 1<<17)
	header, err := proxyproto.Read(reader)
	if err != nil {
		return proxyAnswer{Error: err.Error()}
	}
	if _, err := header.TLVs(); err != nil {
		return proxyAnswer{Error: err.Error()}
	}
	answer := proxyAnswer{Local: header.Command.IsLocal() || header.TransportProtocol.IsUnspec()}
	answer.Rest, _ = io.ReadAll(reader)
	if answer.Local {
		return answer
	}
	answer.Source, answer.SourcePort, answer.Protocol = endpoint(header.SourceAddr)
	answer.Destination, answer.DestinationPort, _ = endpoint(header.DestinationAddr)
	return answer
}

// endpoint returns an address in a uniform format, its port and its protocol. IP addresses have their shortest form,
// and IPv4-mapped IPv6 addresses become IPv4 addresses.
func endpoint(address net.Addr) (string, int, string) {
	switch a := address.(type) {
	case *net.TCPAddr:
		return spell(a.IP), a.Port, "tcp"
	case *net.UDPAddr:
		return spell(a.IP), a.Port, "udp"
	case *net.UnixAddr:
		return a.Name, 0, "unix"
	}
	return "", 0, "none"
}

func spell(ip net.IP) string {
	address, ok := netip.AddrFromSlice(ip)
	if !ok {
		return ""
	}
	return address.Unmap().String()
}

type whoisQuestion struct {
	Whois string `json:"whois"`
}

type rule struct {
	Groups          []string `json:"groups"`
	RecorderTags    []string `json:"recorderTags"`
	RecorderAddrs   []string `json:"recorderAddresses"`
	EnforceRecorder bool     `json:"enforceRecorder"`
	EnableEvents    bool     `json:"enableEvents"`
}

type grantAnswer struct {
	// WhoisError is set if the response cannot be decoded at all.
	WhoisError         string `json:"whoisError,omitempty"`
	ImpersonationError string `json:"impersonationError,omitempty"`
	RecordingError     string `json:"recordingError,omitempty"`
	Login              string `json:"login"`
	NodeName           string `json:"nodeName"`
	Tagged             bool   `json:"tagged"`
	Impersonation      []rule `json:"impersonation"`
	Recording          []rule `json:"recording"`
}

const legacyCapability = tailcfg.PeerCapability("https://" + string(tailcfg.PeerCapabilityKubernetes))

// grants decodes a whois response and its Kubernetes grants with the reference's types. For
// impersonation, it uses the older capability only if the newer one has no rules, like the reference's proxy.
func grants(question whoisQuestion) grantAnswer {
	var who apitype.WhoIsResponse
	if err := json.Unmarshal([]byte(question.Whois), &who); err != nil {
		return grantAnswer{WhoisError: err.Error()}
	}
	recording, recordingErr := tailcfg.UnmarshalCapJSON[kubetypes.KubernetesCapRule](who.CapMap, tailcfg.PeerCapabilityKubernetes)
	impersonation, impersonationErr := recording, recordingErr
	if len(impersonation) == 0 && impersonationErr == nil {
		impersonation, impersonationErr = tailcfg.UnmarshalCapJSON[kubetypes.KubernetesCapRule](who.CapMap, legacyCapability)
	}
	answer := grantAnswer{
		ImpersonationError: text(impersonationErr), RecordingError: text(recordingErr),
		Impersonation: rules(impersonation), Recording: rules(recording),
	}
	if who.UserProfile != nil {
		answer.Login = who.UserProfile.LoginName
	}
	if who.Node != nil {
		answer.NodeName = who.Node.Name
		answer.Tagged = who.Node.IsTagged()
	}
	return answer
}

func rules(read []kubetypes.KubernetesCapRule) []rule {
	all := []rule{}
	for _, r := range read {
		one := rule{
			Groups: []string{}, RecorderTags: append([]string{}, r.Recorders...), RecorderAddrs: []string{},
			EnforceRecorder: r.EnforceRecorder, EnableEvents: r.EnableEvents,
		}
		if r.Impersonate != nil {
			one.Groups = append(one.Groups, r.Impersonate.Groups...)
		}
		for _, address := range r.RecorderAddrs {
			one.RecorderAddrs = append(one.RecorderAddrs, address.String())
		}
		all = append(all, one)
	}
	return all
}
