package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// worker runs one pod. Only the worker's goroutine starts containers and writes the status of the pod. Other goroutines
// read `pod`, `running` and `slots` while they hold the manager's lock.
type worker struct {
	manager *podManager
	pod     *corev1.Pod
	running map[string]*container
	slots   map[string]*slot

	wake chan struct{} // signals that the pod or one of its containers has changed
	gone chan struct{} // closed when the pod no longer exists in the cluster

	refreshed time.Time // time of the last update of the volumes
}

// slot is the state of one container of the pod, over all its runs.
type slot struct {
	container corev1.Container
	current   *container
	last      *container
	restarts  int32
	ready     bool
	waiting   string // reason why the container is not running
	due       time.Time
}

const (
	firstRestartDelay = time.Second
	maxRestartDelay   = 30 * time.Second
	tick              = 500 * time.Millisecond // interval at which probes and due restarts are checked
	refreshPeriod     = 2 * time.Second
)

func newWorker(m *podManager, pod *corev1.Pod) *worker {
	return &worker{
		manager: m, pod: pod, running: map[string]*container{}, slots: map[string]*slot{},
		wake: make(chan struct{}, 1), gone: make(chan struct{}),
	}
}

// update stores a newer state of the pod, and wakes the worker. The caller must hold the manager's lock.
func (w *worker) update(pod *corev1.Pod) {
	w.pod = pod
	w.nudge()
}

func (w *worker) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) latest() *corev1.Pod {
	w.manager.mu.Lock()
	defer w.manager.mu.Unlock()
	return w.pod
}

func (w *worker) run(ctx context.Context) {
	defer w.manager.closeNetwork(w.pod.UID)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var published string
	for {
		pod := w.latest()
		if pod.DeletionTimestamp != nil {
			w.end(ctx, pod)
			return
		}
		w.advance(ctx, pod)
		w.probe(ctx)
		w.refresh(ctx, pod)
		status := w.status(pod)
		if text := fmt.Sprint(status); text != published {
			if err := w.publish(ctx, pod, status); err == nil {
				published = text
			}
		}
		select {
		case <-ctx.Done():
			w.kill(0)
			return
		case <-w.gone:
			w.kill(0)
			return
		case <-w.wake:
		case <-ticker.C:
		}
	}
}

// advance starts all containers that may start: first the init containers, one after another, then all other
// containers. Ephemeral containers start when they are added to the pod.
func (w *worker) advance(ctx context.Context, pod *corev1.Pod) {
	for i := range pod.Spec.InitContainers {
		s := w.slot(pod.Spec.InitContainers[i])
		w.step(ctx, pod, s, pod.Spec.RestartPolicy != corev1.RestartPolicyNever, false)
		sidecar := s.container.RestartPolicy != nil && *s.container.RestartPolicy == corev1.ContainerRestartPolicyAlways
		if !sidecar && !ended(s, true) {
			return
		}
	}
	for i := range pod.Spec.Containers {
		always := pod.Spec.RestartPolicy == corev1.RestartPolicyAlways
		w.step(ctx, pod, w.slot(pod.Spec.Containers[i]), pod.Spec.RestartPolicy != corev1.RestartPolicyNever, always)
	}
	for i := range pod.Spec.EphemeralContainers {
		w.step(ctx, pod, w.slot(corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)), false, false)
	}
}

func (w *worker) slot(c corev1.Container) *slot {
	w.manager.mu.Lock()
	defer w.manager.mu.Unlock()
	s, known := w.slots[c.Name]
	if !known {
		s = &slot{container: c, waiting: "ContainerCreating"}
		w.slots[c.Name] = s
	}
	return s
}

func ended(s *slot, well bool) bool {
	if s.current == nil {
		return false
	}
	select {
	case <-s.current.done:
		return !well || s.current.exitCode == 0
	default:
		return false
	}
}

// step starts a container for the first time. It restarts a container if the restart policy requires a restart and the
// restart delay is over.
func (w *worker) step(ctx context.Context, pod *corev1.Pod, s *slot, onFailure, always bool) {
	if s.current != nil {
		if !ended(s, false) {
			return
		}
		w.leave(s)
		if !always && !(onFailure && s.current.exitCode != 0) {
			return
		}
	}
	if time.Now().Before(s.due) {
		return
	}
	spec, err := w.manager.resolve(ctx, pod, s.container, s.restarts)
	if err != nil {
		s.waiting, s.due = "CreateContainerConfigError: "+err.Error(), time.Now().Add(firstRestartDelay)
		return
	}
	started, err := startContainer("double://"+string(uuid.NewUUID()), spec)
	if err != nil {
		s.waiting, s.due = "RunContainerError: "+err.Error(), time.Now().Add(firstRestartDelay)
		return
	}
	w.manager.mu.Lock()
	if s.current != nil {
		s.last = s.current
		s.restarts++
	}
	s.current, s.ready = started, s.container.ReadinessProbe == nil
	s.due = time.Now().Add(min(firstRestartDelay<<min(s.restarts, 10), maxRestartDelay))
	w.running[s.container.Name] = started
	if w.manager.stopping {
		started.stop(0)
	}
	w.manager.mu.Unlock()
	go func() {
		<-started.done
		w.nudge()
	}()
}

// leave removes an exited container from `running`, so that clients can no longer attach to it.
func (w *worker) leave(s *slot) {
	w.manager.mu.Lock()
	defer w.manager.mu.Unlock()
	if w.running[s.container.Name] == s.current {
		delete(w.running, s.container.Name)
	}
	s.ready = false
}

// refresh updates the volumes every refreshPeriod if pods have their own networks and mounts.
func (w *worker) refresh(ctx context.Context, pod *corev1.Pod) {
	if w.manager.networks == nil || time.Since(w.refreshed) < refreshPeriod {
		return
	}
	w.refreshed = time.Now()
	w.manager.refresh(ctx, pod)
}

func (w *worker) probe(ctx context.Context) {
	for _, s := range w.slots {
		probe := s.container.ReadinessProbe
		if probe == nil || s.current == nil || ended(s, false) {
			continue
		}
		s.ready = answers(ctx, w.manager.addressOf(w.pod.UID), s, probe)
	}
}

const probeTimeout = 2 * time.Second

func answers(ctx context.Context, host string, s *slot, probe *corev1.Probe) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	switch {
	case probe.HTTPGet != nil:
		scheme := "http"
		if probe.HTTPGet.Scheme == corev1.URISchemeHTTPS {
			return false // the tests use no HTTPS probes
		}
		address := fmt.Sprintf("%s://%s:%d%s", scheme, host, portOf(s, probe.HTTPGet.Port), probe.HTTPGet.Path)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return false
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode >= 200 && response.StatusCode < 400
	case probe.TCPSocket != nil:
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", host, portOf(s, probe.TCPSocket.Port)))
		if err != nil {
			return false
		}
		return conn.Close() == nil
	case probe.Exec != nil:
		command := exec.CommandContext(ctx, probe.Exec.Command[0], probe.Exec.Command[1:]...)
		command.Env, command.Dir = s.current.spec.environment, s.current.spec.folder
		return command.Run() == nil
	default:
		return true
	}
}

func portOf(s *slot, port intstr.IntOrString) int {
	if port.Type == intstr.Int {
		return port.IntValue()
	}
	for _, named := range s.container.Ports {
		if named.Name == port.StrVal {
			return int(named.ContainerPort)
		}
	}
	number, _ := strconv.Atoi(port.StrVal)
	return number
}

// end stops the processes of the pod within its grace period, and then removes the pod from the cluster.
func (w *worker) end(ctx context.Context, pod *corev1.Pod) {
	grace := 30 * time.Second
	if pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	}
	deadline := time.Now().Add(grace)
	w.beforeEnd(ctx, pod, grace)
	w.kill(time.Until(deadline))
	_ = w.publish(ctx, pod, w.status(pod))
	zero := int64(0)
	err := w.manager.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		klog.ErrorS(err, "cannot delete", "pod", klog.KObj(pod))
	}
}

// beforeEnd calls the preStop hooks of the running containers. Only HTTP hooks are supported.
func (w *worker) beforeEnd(ctx context.Context, pod *corev1.Pod, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	var hooks sync.WaitGroup
	for _, s := range w.slots {
		hook := s.container.Lifecycle
		if hook == nil || hook.PreStop == nil || hook.PreStop.HTTPGet == nil || s.current == nil || ended(s, false) {
			continue
		}
		get := hook.PreStop.HTTPGet
		address := fmt.Sprintf("http://%s:%d%s", w.manager.addressOf(pod.UID), portOf(s, get.Port), get.Path)
		hooks.Go(func() {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
			if err != nil {
				return
			}
			if response, err := http.DefaultClient.Do(request); err == nil {
				_ = response.Body.Close()
			}
		})
	}
	hooks.Wait()
}

func (w *worker) kill(grace time.Duration) {
	deadline := time.Now().Add(grace)
	for _, s := range w.slots {
		if s.current != nil && !ended(s, false) {
			s.current.stop(time.Until(deadline))
		}
		w.leave(s)
	}
}

// publish writes the status to the newest version of the pod in the cluster.
func (w *worker) publish(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		newest, err := w.manager.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if newest.UID != pod.UID {
			return nil
		}
		status.QOSClass, status.ObservedGeneration = newest.Status.QOSClass, newest.Generation
		conditions := withOthers(status.Conditions, newest.Status.Conditions)
		newest.Status = status
		newest.Status.Conditions = conditions
		_, err = w.manager.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, newest, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		klog.ErrorS(err, "cannot write the status", "pod", klog.KObj(pod))
	}
	return err
}
