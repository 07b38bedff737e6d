package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// get lists the ConfigMaps of a namespace in pages, and reads a ConfigMap that does not exist.
func get(ctx context.Context, c *client, args []string) (any, error) {
	if len(args) != 1 {
		return nil, errArguments
	}
	maps := c.set.CoreV1().ConfigMaps(args[0])
	names := []string{}
	for next := ""; ; {
		page, err := maps.List(ctx, metav1.ListOptions{Limit: 2, Continue: next})
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	_, err := maps.Get(ctx, "there-is-no-such-thing", metav1.GetOptions{})
	return map[string]any{"names": names, "missing": fmt.Sprint(err)}, nil
}

// watchMany opens one informer for each name, and waits until all informers are in sync. Then it creates, updates and
// deletes an object for each name.
func watchMany(ctx context.Context, c *client, args []string) (any, error) {
	if len(args) != 2 {
		return nil, errArguments
	}
	namespace := args[0]
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, err
	}
	var added, updated, deleted atomic.Int64
	var all sync.WaitGroup
	all.Add(count)
	synced := make([]cache.InformerSynced, 0, count)
	stop := make(chan struct{})
	defer close(stop)
	for index := range count {
		name := nameOf(index)
		factory := informers.NewSharedInformerFactoryWithOptions(c.set, 0, informers.WithNamespace(namespace),
			informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.FieldSelector = "metadata.name=" + name }))
		informer := factory.Core().V1().ConfigMaps().Informer()
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { added.Add(1) },
			UpdateFunc: func(any, any) { updated.Add(1) },
			DeleteFunc: func(any) { deleted.Add(1); all.Done() },
		}); err != nil {
			return nil, err
		}
		factory.Start(stop)
		synced = append(synced, informer.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, fmt.Errorf("not all of %d informers are in sync: %w", count, context.Cause(ctx))
	}
	maps := c.set.CoreV1().ConfigMaps(namespace)
	for index := range count {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: nameOf(index)}, Data: map[string]string{"step": "one"}}
		if _, err := maps.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		object.Data["step"] = "two"
		if _, err := maps.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
			return nil, err
		}
	}
	// Waits until every informer has reported its object, and only then deletes the objects. Updates are not counted,
	// because an informer may combine an update with a later change.
	for added.Load() < int64(count) {
		if err := pause(ctx); err != nil {
			return nil, fmt.Errorf("%d of %d were added: %w", added.Load(), count, err)
		}
	}
	for index := range count {
		if err := maps.Delete(ctx, nameOf(index), metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return nil, fmt.Errorf("%d of %d were deleted", deleted.Load(), count)
	}
	return map[string]any{"added": added.Load(), "deleted": deleted.Load()}, nil
}

func nameOf(index int) string { return fmt.Sprintf("watched-%d", index) }
