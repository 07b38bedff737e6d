package main

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// status returns the status of the pod. Like a kubelet, it derives phase and conditions from the containers.
func (w *worker) status(pod *corev1.Pod) corev1.PodStatus {
	w.manager.mu.Lock()
	defer w.manager.mu.Unlock()
	status := corev1.PodStatus{
		HostIP: "127.0.0.1", HostIPs: []corev1.HostIP{{IP: "127.0.0.1"}},
		PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}},
	}
	if w.manager.networks != nil {
		status.HostIP, status.HostIPs = nodeAddress, []corev1.HostIP{{IP: nodeAddress}}
		status.PodIP, status.PodIPs = "", nil
		if network, ok := w.manager.podNetwork[pod.UID]; ok {
			status.PodIP = network.address
			status.PodIPs = []corev1.PodIP{{IP: network.address}, {IP: network.address6}}
		}
	}
	initialised, ready, running, failed, finished := true, true, false, false, len(pod.Spec.Containers) > 0
	for _, c := range pod.Spec.InitContainers {
		s := w.statusOf(c.Name, c.Image)
		status.InitContainerStatuses = append(status.InitContainerStatuses, s)
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		initialised = initialised && (sidecar || (s.State.Terminated != nil && s.State.Terminated.ExitCode == 0))
		failed = failed || (!sidecar && s.State.Terminated != nil && s.State.Terminated.ExitCode != 0 &&
			pod.Spec.RestartPolicy == corev1.RestartPolicyNever)
	}
	for _, c := range pod.Spec.Containers {
		s := w.statusOf(c.Name, c.Image)
		status.ContainerStatuses = append(status.ContainerStatuses, s)
		ready = ready && s.Ready
		running = running || s.State.Running != nil
		again := s.State.Terminated != nil && restarts(pod.Spec.RestartPolicy, s.State.Terminated.ExitCode)
		finished = finished && s.State.Terminated != nil && !again
		running = running || again
		failed = failed || (s.State.Terminated != nil && !again && s.State.Terminated.ExitCode != 0)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		status.EphemeralContainerStatuses = append(status.EphemeralContainerStatuses, w.statusOf(c.Name, c.Image))
	}
	switch {
	case finished && !failed:
		status.Phase = corev1.PodSucceeded
	case finished || (failed && !initialised):
		status.Phase = corev1.PodFailed
	case running:
		status.Phase = corev1.PodRunning
	default:
		status.Phase = corev1.PodPending
	}
	// The pod is ready only if the conditions of its readiness gates, which other programs write, are also true.
	gates := ready
	for _, gate := range pod.Spec.ReadinessGates {
		gates = gates && holds(pod, gate.ConditionType)
	}
	start := pod.CreationTimestamp
	status.StartTime = &start
	status.Conditions = []corev1.PodCondition{
		condition(corev1.PodScheduled, true), condition(corev1.PodInitialized, initialised),
		condition(corev1.ContainersReady, ready), condition(corev1.PodReady, gates),
	}
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = start
	}
	return status
}

func restarts(policy corev1.RestartPolicy, exitCode int32) bool {
	return policy == corev1.RestartPolicyAlways || (policy == corev1.RestartPolicyOnFailure && exitCode != 0)
}

func holds(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// withOthers adds the conditions that other programs have written to the status of the pod.
func withOthers(own, newest []corev1.PodCondition) []corev1.PodCondition {
	merged := slices.Clone(own)
	for _, c := range newest {
		if !slices.ContainsFunc(own, func(known corev1.PodCondition) bool { return known.Type == c.Type }) {
			merged = append(merged, c)
		}
	}
	return merged
}

func condition(kind corev1.PodConditionType, holds bool) corev1.PodCondition {
	value := corev1.ConditionFalse
	if holds {
		value = corev1.ConditionTrue
	}
	return corev1.PodCondition{Type: kind, Status: value}
}

// statusOf returns the status of one container. The caller must hold the manager's lock.
func (w *worker) statusOf(name, image string) corev1.ContainerStatus {
	status := corev1.ContainerStatus{Name: name, Image: image, ImageID: "double://" + image}
	s, known := w.slots[name]
	if !known || s.current == nil {
		reason, message := "PodInitializing", ""
		if known {
			reason, message = splitReason(s.waiting)
		}
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
		return status
	}
	status.ContainerID, status.RestartCount = s.current.id, s.restarts
	status.State = stateOf(s.current)
	started := status.State.Running != nil
	status.Started, status.Ready = &started, started && s.ready
	if s.last != nil {
		status.LastTerminationState = stateOf(s.last)
	}
	return status
}

func stateOf(c *container) corev1.ContainerState {
	select {
	case <-c.done:
		reason := "Completed"
		if c.exitCode != 0 {
			reason = "Error"
		}
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: int32(c.exitCode), Reason: reason, ContainerID: c.id,
			StartedAt: seconds(c.started), FinishedAt: seconds(c.finished),
		}}
	default:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: seconds(c.started)}}
	}
}

// seconds truncates a time to whole seconds, the precision of the API.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

func splitReason(waiting string) (reason, message string) {
	for i := range waiting {
		if waiting[i] == ':' {
			return waiting[:i], waiting[min(i+2, len(waiting)):]
		}
	}
	return waiting, ""
}
