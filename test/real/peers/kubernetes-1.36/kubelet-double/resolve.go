package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// resolve returns the process of a container, with variables from fields, ConfigMaps and Secrets, and with folders as
// volumes. Processes use the file system of this machine, so mount paths in arguments and variables are replaced by the
// folders of the volumes.
func (m *podManager) resolve(ctx context.Context, pod *corev1.Pod, c corev1.Container, attempt int32) (spec, error) {
	folder := filepath.Join(m.folderOf(pod), "containers", c.Name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return spec{}, err
	}
	mounts, err := m.mounts(ctx, pod, c)
	if err != nil {
		return spec{}, err
	}
	variables, order, err := m.environment(ctx, pod, c)
	if err != nil {
		return spec{}, err
	}
	variables["HOME"], variables["HOSTNAME"] = folder, cmp.Or(pod.Spec.Hostname, pod.Name)
	order = append([]string{"HOME", "HOSTNAME"}, order...)
	if c.TTY {
		variables["TERM"] = "xterm"
		order = append(order, "TERM")
	}
	expand := expansion.MappingFuncFor(variables)
	environment := []string{"PATH=" + os.Getenv("PATH")}
	if marker := os.Getenv("TAILCAST_RIG"); marker != "" {
		environment = append(environment, "TAILCAST_RIG="+marker)
	}
	network, err := m.networkOf(pod)
	if err != nil {
		return spec{}, err
	}
	var bound []mount
	if network != nil {
		bound = slices.DeleteFunc(slices.Clone(mounts), func(m mount) bool { return !isBound(m.target) })
		mounts = slices.DeleteFunc(mounts, func(m mount) bool { return isBound(m.target) })
	}
	for _, name := range order {
		environment = append(environment, name+"="+substitute(variables[name], mounts))
	}
	argv := c.Command
	if len(argv) == 0 {
		argv = m.images.of(c.Image)
	}
	argv = append(slices.Clone(argv), c.Args...)
	if len(argv) == 0 {
		argv = []string{"sleep", "infinity"} // no command is configured for this image
	}
	for i := range argv {
		argv[i] = substitute(expansion.Expand(argv[i], expand), mounts)
	}
	if c.WorkingDir != "" {
		if mapped := substitute(c.WorkingDir, mounts); mapped != c.WorkingDir {
			folder = mapped
		}
	}
	if network != nil {
		argv = network.enter(argv, bound)
	}
	log := filepath.Join(m.folderOf(pod), "logs", fmt.Sprintf("%s-%d.log", c.Name, attempt))
	return spec{
		argv: argv, environment: environment, folder: folder,
		tty: c.TTY, stdin: c.Stdin, stdinOnce: c.StdinOnce, logPath: log,
	}, nil
}

type mount struct {
	path   *regexp.Regexp
	folder string
	target string
	length int
}

func substitute(text string, mounts []mount) string {
	for _, m := range mounts {
		text = m.path.ReplaceAllString(text, "${1}"+strings.ReplaceAll(m.folder, "$", "$$")+"${2}")
	}
	return text
}

func (m *podManager) mounts(ctx context.Context, pod *corev1.Pod, c corev1.Container) ([]mount, error) {
	var mounts []mount
	for _, vm := range c.VolumeMounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == vm.Name })
		if i < 0 {
			return nil, fmt.Errorf("no volume %q", vm.Name)
		}
		folder, err := m.volume(ctx, pod, pod.Spec.Volumes[i])
		if err != nil {
			return nil, err
		}
		pattern := `(^|[=:,\s"'])` + regexp.QuoteMeta(strings.TrimRight(vm.MountPath, "/")) + `($|[/:,\s"'])`
		mounts = append(mounts, mount{
			path: regexp.MustCompile(pattern), folder: filepath.Join(folder, vm.SubPath), target: vm.MountPath, length: len(vm.MountPath),
		})
	}
	slices.SortFunc(mounts, func(a, b mount) int { return b.length - a.length })
	return mounts, nil
}

func (m *podManager) volume(ctx context.Context, pod *corev1.Pod, v corev1.Volume) (string, error) {
	folder := filepath.Join(m.folderOf(pod), "volumes", v.Name)
	switch {
	case v.HostPath != nil:
		return v.HostPath.Path, nil
	case v.PersistentVolumeClaim != nil:
		folder = filepath.Join(m.root, "claims", pod.Namespace, v.PersistentVolumeClaim.ClaimName)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	var sources []corev1.VolumeProjection
	switch {
	case v.ConfigMap != nil:
		sources = []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items, Optional: v.ConfigMap.Optional,
		}}}
	case v.Secret != nil:
		sources = []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items, Optional: v.Secret.Optional,
		}}}
	case v.DownwardAPI != nil:
		sources = []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: v.DownwardAPI.Items}}}
	case v.Projected != nil:
		sources = v.Projected.Sources
	}
	payload := map[string]volumeutil.FileProjection{}
	for _, source := range sources {
		files, err := m.project(ctx, pod, source)
		if err != nil {
			return "", err
		}
		for name, content := range files {
			if m.networks != nil {
				payload[name] = volumeutil.FileProjection{Data: content, Mode: 0o600}
				continue
			}
			path := filepath.Join(folder, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o600)); err != nil {
				return "", err
			}
		}
	}
	if m.networks != nil && len(sources) > 0 {
		// Writes the files as a kubelet does: programs watch the symlink, which is replaced last.
		writer, err := volumeutil.NewAtomicWriter(folder, string(pod.UID)+"/"+v.Name)
		if err != nil {
			return "", err
		}
		return folder, writer.Write(payload, nil)
	}
	return folder, nil
}

func (m *podManager) project(ctx context.Context, pod *corev1.Pod, source corev1.VolumeProjection) (map[string][]byte, error) {
	switch {
	case source.ConfigMap != nil:
		data, err := m.configMap(ctx, pod.Namespace, source.ConfigMap.Name, source.ConfigMap.Optional)
		return pick(data, source.ConfigMap.Items), err
	case source.Secret != nil:
		data, err := m.secret(ctx, pod.Namespace, source.Secret.Name, source.Secret.Optional)
		return pick(data, source.Secret.Items), err
	case source.ServiceAccountToken != nil:
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: source.ServiceAccountToken.ExpirationSeconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		}}
		if source.ServiceAccountToken.Audience != "" {
			request.Spec.Audiences = []string{source.ServiceAccountToken.Audience}
		}
		accounts := m.client.CoreV1().ServiceAccounts(pod.Namespace)
		token, err := accounts.CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		return map[string][]byte{source.ServiceAccountToken.Path: []byte(token.Status.Token)}, nil
	case source.DownwardAPI != nil:
		files := map[string][]byte{}
		for _, item := range source.DownwardAPI.Items {
			if item.FieldRef != nil {
				files[item.Path] = []byte(field(pod, item.FieldRef.FieldPath))
			}
		}
		return files, nil
	default:
		return nil, nil
	}
}

func pick(data map[string][]byte, items []corev1.KeyToPath) map[string][]byte {
	if len(items) == 0 {
		return data
	}
	picked := map[string][]byte{}
	for _, item := range items {
		if content, ok := data[item.Key]; ok {
			picked[item.Path] = content
		}
	}
	return picked
}

func (m *podManager) configMap(ctx context.Context, namespace, name string, optional *bool) (map[string][]byte, error) {
	object, err := m.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	data := maps.Clone(object.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, text := range object.Data {
		data[key] = []byte(text)
	}
	return data, nil
}

func (m *podManager) secret(ctx context.Context, namespace, name string, optional *bool) (map[string][]byte, error) {
	object, err := m.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	return object.Data, nil
}

func unlessOptional(err error, optional *bool) error {
	if optional != nil && *optional && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// environment returns the variables of the container, and their names in the order of their definitions.
func (m *podManager) environment(ctx context.Context, pod *corev1.Pod, c corev1.Container) (map[string]string, []string, error) {
	variables := map[string]string{}
	var order []string
	set := func(name, value string) {
		if _, known := variables[name]; !known {
			order = append(order, name)
		}
		variables[name] = value
	}
	if m.networks != nil {
		// The address of the API server's Service, as in a real cluster.
		set("KUBERNETES_SERVICE_HOST", "10.96.0.1")
		set("KUBERNETES_SERVICE_PORT", "443")
		set("KUBERNETES_SERVICE_PORT_HTTPS", "443")
	} else if server, err := url.Parse(m.apiServer); err == nil {
		set("KUBERNETES_SERVICE_HOST", server.Hostname())
		set("KUBERNETES_SERVICE_PORT", server.Port())
	}
	for _, from := range c.EnvFrom {
		var data map[string][]byte
		var err error
		if from.ConfigMapRef != nil {
			data, err = m.configMap(ctx, pod.Namespace, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		} else if from.SecretRef != nil {
			data, err = m.secret(ctx, pod.Namespace, from.SecretRef.Name, from.SecretRef.Optional)
		}
		if err != nil {
			return nil, nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			set(from.Prefix+key, string(data[key]))
		}
	}
	for _, variable := range c.Env {
		value, err := m.variable(ctx, pod, variable)
		if err != nil {
			return nil, nil, err
		}
		if variable.ValueFrom == nil {
			value = expansion.Expand(value, expansion.MappingFuncFor(variables))
		}
		set(variable.Name, value)
	}
	return variables, order, nil
}

func (m *podManager) variable(ctx context.Context, pod *corev1.Pod, v corev1.EnvVar) (string, error) {
	from := v.ValueFrom
	switch {
	case from == nil:
		return v.Value, nil
	case from.FieldRef != nil:
		return m.field(pod, from.FieldRef.FieldPath)
	case from.ConfigMapKeyRef != nil:
		data, err := m.configMap(ctx, pod.Namespace, from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Optional)
		return keyOf(data, err, from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Optional)
	case from.SecretKeyRef != nil:
		data, err := m.secret(ctx, pod.Namespace, from.SecretKeyRef.Name, from.SecretKeyRef.Optional)
		return keyOf(data, err, from.SecretKeyRef.Key, from.SecretKeyRef.Optional)
	default:
		return "", nil
	}
}

func keyOf(data map[string][]byte, err error, key string, optional *bool) (string, error) {
	if err != nil {
		return "", err
	}
	content, ok := data[key]
	if !ok && (optional == nil || !*optional) {
		return "", fmt.Errorf("no key %q", key)
	}
	return string(content), nil
}

// field returns the value of a field of the pod for a variable. If pods have their own networks, the first call creates
// the network of the pod, because fields may contain its addresses.
func (m *podManager) field(pod *corev1.Pod, path string) (string, error) {
	network, err := m.networkOf(pod)
	if err != nil || network == nil {
		return field(pod, path), err
	}
	switch path {
	case "status.podIP":
		return network.address, nil
	case "status.podIPs":
		return network.address + "," + network.address6, nil
	case "status.hostIP", "status.hostIPs":
		return nodeAddress, nil
	default:
		return field(pod, path), nil
	}
}

func field(pod *corev1.Pod, path string) string {
	if key, ok := strings.CutPrefix(path, "metadata.labels['"); ok {
		return pod.Labels[strings.TrimSuffix(key, "']")]
	}
	if key, ok := strings.CutPrefix(path, "metadata.annotations['"); ok {
		return pod.Annotations[strings.TrimSuffix(key, "']")]
	}
	switch path {
	case "metadata.name":
		return pod.Name
	case "metadata.namespace":
		return pod.Namespace
	case "metadata.uid":
		return string(pod.UID)
	case "spec.nodeName":
		return pod.Spec.NodeName
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName
	case "status.podIP", "status.hostIP", "status.podIPs", "status.hostIPs":
		return "127.0.0.1"
	default:
		return ""
	}
}
