// Command kubelet-double simulates a node without containers. The command registers a Node, and runs the commands of
// the node's pods as local processes. It serves the kubelet's API with the code for streams, translation and logs that
// a real kubelet and container runtime use. The processes are not isolated, so run this command only on test machines.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

type options struct {
	kubeconfig, nodeName, root string
	certificate, key, clientCA string
	webSockets                 bool
	bridge, hosts              string
	images                     imageCommands
}

// address returns the address at which the API server reaches the node.
func (o options) address() string {
	if o.bridge != "" {
		return nodeAddress
	}
	return "127.0.0.1"
}

// imageCommands maps an image name (without tag) to the local command that replaces its entry point.
type imageCommands map[string][]string

func (m imageCommands) String() string { return fmt.Sprint(map[string][]string(m)) }

func (m imageCommands) Set(text string) error {
	name, command, found := strings.Cut(text, "=")
	if !found {
		return errors.New(`want image=["command","argument"]`)
	}
	var argv []string
	if err := json.Unmarshal([]byte(command), &argv); err != nil {
		return err
	}
	m[name] = argv
	return nil
}

func (m imageCommands) of(image string) []string {
	name, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		name = name[:colon]
	}
	return m[name]
}

func main() {
	o := options{images: imageCommands{}}
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server")
	flag.StringVar(&o.nodeName, "node", "node-1", "name of the Node")
	flag.StringVar(&o.root, "root", "", "folder for the files of the pods")
	flag.StringVar(&o.certificate, "certificate", "", "serving certificate (PEM)")
	flag.StringVar(&o.key, "key", "", "its private key (PEM)")
	flag.StringVar(&o.clientCA, "client-ca", "", "CA of the API server's client certificate (PEM)")
	flag.BoolVar(&o.webSockets, "websockets", false, "declare that the node takes WebSocket streams itself")
	flag.StringVar(&o.bridge, "bridge", "", "give each pod a network of its own behind this bridge (needs root)")
	flag.StringVar(&o.hosts, "hosts", "/etc/hosts", "with -bridge: what pods have as /etc/hosts")
	flag.Var(o.images, "image", `image=["command","argument"]: what runs for a container that names no command (repeatable)`)
	klog.InitFlags(nil)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet-double:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // the default limit delays pods by seconds
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(o.address(), "0"))
	if err != nil {
		return err
	}
	manager := newPodManager(client, o.nodeName, root, config.Host, o.images)
	if o.bridge != "" {
		manager.networks, manager.hostsFile = &podNetworks{bridge: o.bridge}, o.hosts
	}
	defer manager.stopAll()
	server, err := newServer(manager, o)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, o.certificate, o.key) }()
	defer server.Close()
	port := int32(listener.Addr().(*net.TCPAddr).Port)
	if err := register(ctx, client, o, port); err != nil {
		return err
	}
	go func() { failed <- manager.run(ctx) }()
	fmt.Printf("{\"node\":%q,\"port\":%d}\n", o.nodeName, port)
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// register creates the Node, or uses an existing one, and reports the Node as ready once. The Node needs no heartbeats,
// because no node lifecycle controller runs.
func register(ctx context.Context, client kubernetes.Interface, o options, port int32) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: o.nodeName,
		Labels: map[string]string{
			"kubernetes.io/hostname": o.nodeName, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
		},
	}}
	created, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		created, err = client.CoreV1().Nodes().Get(ctx, o.nodeName, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("500"), corev1.ResourceEphemeralStorage: resource.MustParse("64Gi"),
	}
	now := metav1.Now()
	created.Status = corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletDouble",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}},
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: o.address()}, {Type: corev1.NodeHostName, Address: o.nodeName},
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
		NodeInfo:        corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64"},
	}
	if o.webSockets {
		created.Status.DeclaredFeatures = []string{"ExtendWebSocketsToKubelet"}
	}
	_, err = client.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}
