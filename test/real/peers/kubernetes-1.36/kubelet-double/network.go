package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podNetworks gives each pod its own network namespace and addresses, behind a bridge in the node's network namespace.
// Pods have routes only to the node. The node routes all packets between pods, so the rules of Services apply to every
// packet.
type podNetworks struct {
	bridge string
	last   int // the number of the newest pod
}

const (
	nodeAddress  = "10.77.0.1"
	nodeAddress6 = "fd77::1"
	// enterScript mounts an empty /run and /tmp, which processes would otherwise share with this machine. The script
	// also mounts the hosts file and the folders of volumes, and then runs the command.
	enterScript = `mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /tmp && mount --bind "$1" /etc/hosts || exit 125
shift
while [ "$1" != -- ]; do
  mkdir -p "$2" && mount --bind "$1" "$2" || exit 125
  shift 2
done
shift
exec "$@"`
)

// podNetwork is the network of one pod. An idle process keeps its namespace open, like the pause container.
type podNetwork struct {
	holder            *exec.Cmd
	address, address6 string
	hosts             string
}

// networkOf returns the network of a pod, and creates it on the first call. It returns nil if pods share the node's
// network.
func (m *podManager) networkOf(pod *corev1.Pod) (*podNetwork, error) {
	if m.networks == nil {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.podNetwork[pod.UID]; ok {
		return known, nil
	}
	m.networks.last++
	network, err := openNetwork(m.networks.bridge, m.networks.last, m.hostsFile)
	if err != nil {
		return nil, err
	}
	m.podNetwork[pod.UID] = network
	// Tests read this file to enter the network of the pod.
	holders := filepath.Join(m.root, "networks")
	pid := []byte(strconv.Itoa(network.holder.Process.Pid))
	if err := errors.Join(os.MkdirAll(holders, 0o755), os.WriteFile(filepath.Join(holders, pod.Namespace+"_"+pod.Name), pid, 0o644)); err != nil {
		return nil, err
	}
	return network, nil
}

func (m *podManager) closeNetwork(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.podNetwork[uid]; ok {
		delete(m.podNetwork, uid)
		known.close()
	}
}

func openNetwork(bridge string, number int, hosts string) (*podNetwork, error) {
	n := &podNetwork{
		address:  fmt.Sprintf("10.77.%d.%d", number/250, number%250+2),
		address6: fmt.Sprintf("fd77::%x", number+0x10),
		hosts:    hosts,
	}
	// The shell prints a line after it has entered its namespace.
	n.holder = newCommand([]string{"unshare", "--net", "sh", "-c", "echo; exec sleep infinity"}, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, "/")
	output, err := n.holder.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.holder.Start(); err != nil {
		return nil, err
	}
	if _, err := output.Read(make([]byte, 1)); err != nil {
		n.close()
		return nil, fmt.Errorf("no network namespace: %w", err)
	}
	pid := strconv.Itoa(n.holder.Process.Pid)
	host := "pod" + strconv.Itoa(number)
	commands := []string{
		"ip link add " + host + " type veth peer name eth0 netns " + pid,
		"ip link set " + host + " master " + bridge + " up",
	}
	for _, inside := range []string{
		"ip link set lo up",
		"ip link set eth0 up",
		"ip addr add " + n.address + "/32 dev eth0",
		"ip route add " + nodeAddress + " dev eth0",
		"ip route add default via " + nodeAddress,
		"ip -6 addr add " + n.address6 + "/128 dev eth0 nodad",
		"ip -6 route add " + nodeAddress6 + " dev eth0",
		"ip -6 route add default via " + nodeAddress6,
	} {
		commands = append(commands, "nsenter --target "+pid+" --net "+inside)
	}
	for _, command := range commands {
		argv := strings.Fields(command)
		if said, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			n.close()
			return nil, fmt.Errorf("%s: %w: %s", command, err, said)
		}
	}
	return n, nil
}

// close kills the idle process. The kernel then removes the namespace and its link.
func (n *podNetwork) close() {
	_ = syscall.Kill(-n.holder.Process.Pid, syscall.SIGKILL)
	_ = n.holder.Wait()
}

// enter returns a command that runs argv in the network of the pod, with its own /run and /tmp, and with the folders of
// `bound` at their mount paths.
func (n *podNetwork) enter(argv []string, bound []mount) []string {
	entered := []string{
		"nsenter", "--target", strconv.Itoa(n.holder.Process.Pid), "--net",
		"unshare", "--mount", "sh", "-c", enterScript, "sh", n.hosts,
	}
	for _, m := range bound {
		entered = append(entered, m.folder, m.target)
	}
	return append(append(entered, "--"), argv...)
}

// isBound reports whether a volume with this mount path is mounted. For all other volumes, the mount path is replaced
// by the folder of the volume in arguments and variables.
func isBound(path string) bool {
	return slices.ContainsFunc([]string{"/run/", "/var/run/", "/tmp/"}, func(root string) bool {
		return strings.HasPrefix(path, root)
	})
}

// refresh updates the files of the ConfigMap and Secret volumes of a pod, as a kubelet does.
func (m *podManager) refresh(ctx context.Context, pod *corev1.Pod) {
	for _, volume := range pod.Spec.Volumes {
		if volume.Secret != nil || volume.ConfigMap != nil {
			_, _ = m.volume(ctx, pod, volume)
		}
	}
}

// addressOf returns the address at which the node reaches the ports of a pod.
func (m *podManager) addressOf(uid types.UID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if network, ok := m.podNetwork[uid]; ok {
		return network.address
	}
	return "127.0.0.1"
}
