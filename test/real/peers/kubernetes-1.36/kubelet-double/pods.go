package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// podManager watches the pods of the cluster. It assigns pods without a node to this node, and runs the pods of this
// node. Each pod has one worker.
type podManager struct {
	client     kubernetes.Interface
	node, root string
	apiServer  string
	images     imageCommands
	networks   *podNetworks // nil: pods share the network of the node
	hostsFile  string

	mu         sync.Mutex
	pods       map[types.UID]*worker
	execs      map[*os.Process]struct{}
	podNetwork map[types.UID]*podNetwork
	workers    sync.WaitGroup
	stopping   bool
}

func newPodManager(client kubernetes.Interface, node, root, apiServer string, images imageCommands) *podManager {
	return &podManager{
		client: client, node: node, root: root, apiServer: apiServer, images: images,
		pods: map[types.UID]*worker{}, execs: map[*os.Process]struct{}{}, podNetwork: map[types.UID]*podNetwork{},
	}
}

// run watches pods until the context is cancelled.
func (m *podManager) run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(m.client, 0)
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { m.observe(ctx, object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { m.observe(ctx, object.(*corev1.Pod)) },
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				m.forget(pod.UID)
			}
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	return nil
}

func (m *podManager) observe(ctx context.Context, pod *corev1.Pod) {
	switch pod.Spec.NodeName {
	case "":
		if pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 {
			go m.bind(ctx, pod)
		}
	case m.node:
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.stopping {
			return
		}
		w, known := m.pods[pod.UID]
		if !known {
			if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
				return // the pod ended during an earlier run of this program
			}
			w = newWorker(m, pod)
			m.pods[pod.UID] = w
			m.workers.Go(func() { w.run(ctx) })
		}
		w.update(pod)
	}
}

func (m *podManager) bind(ctx context.Context, pod *corev1.Pod) {
	err := m.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: m.node},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		klog.ErrorS(err, "cannot bind", "pod", klog.KObj(pod))
	}
}

func (m *podManager) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w, known := m.pods[uid]; known {
		close(w.gone)
		delete(m.pods, uid)
	}
}

// stopAll kills every process of every pod, so that no process outlives the node.
func (m *podManager) stopAll() {
	m.mu.Lock()
	m.stopping = true
	for process := range m.execs {
		_ = syscall.Kill(-process.Pid, syscall.SIGKILL)
	}
	for _, w := range m.pods {
		for _, c := range w.running {
			_ = syscall.Kill(-c.process.Pid, syscall.SIGKILL)
		}
	}
	for _, network := range m.podNetwork {
		network.close()
	}
	m.mu.Unlock()
	m.workers.Wait()
}

// track registers the process of an exec for stopAll, until the returned function is called.
func (m *podManager) track(process *os.Process) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.execs[process] = struct{}{}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.execs, process)
	}
}

func (m *podManager) pod(namespace, name, uid string) (*corev1.Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.pods {
		if w.pod.Namespace == namespace && w.pod.Name == name && (uid == "" || string(w.pod.UID) == uid) {
			return w.pod, nil
		}
	}
	return nil, fmt.Errorf("pod %s/%s does not exist", namespace, name)
}

func (m *podManager) list() []corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []corev1.Pod
	for _, w := range m.pods {
		list = append(list, *w.pod)
	}
	slices.SortFunc(list, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return list
}

func (m *podManager) containerNamed(uid types.UID, name string) (*container, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w, known := m.pods[uid]; known {
		if c, running := w.running[name]; running {
			return c, nil
		}
	}
	return nil, fmt.Errorf("container %q is not running", name)
}

// logOf returns the log file and the identifier of a container's current or previous run.
func (m *podManager) logOf(namespace, podName, name string, previous bool) (path, id string, err error) {
	pod, err := m.pod(namespace, podName, "")
	if err != nil {
		return "", "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	w, known := m.pods[pod.UID]
	if !known {
		return "", "", fmt.Errorf("pod %s/%s does not exist", namespace, podName)
	}
	slot, known := w.slots[name]
	if !known {
		return "", "", fmt.Errorf("container %q not found in pod %q", name, podName)
	}
	run := slot.current
	if previous {
		run = slot.last
	}
	switch {
	case run != nil:
		return run.spec.logPath, run.id, nil
	case previous:
		return "", "", fmt.Errorf("previous terminated container %q in pod %q not found", name, podName)
	default:
		return "", "", fmt.Errorf("container %q in pod %q is waiting to start: %s", name, podName, slot.waiting)
	}
}

func (m *podManager) folderOf(pod *corev1.Pod) string {
	return filepath.Join(m.root, "pods", string(pod.UID))
}
