import { describe, expect, it } from 'vitest';
import type { ApiObject } from '../../demo/json.ts';
import { CONFIGMAPS, PODS } from '../../demo/resources.ts';
import { parseLabelSelector } from '../../demo/selectors.ts';
import { createStore } from '../../demo/store.ts';

const all = (): boolean => true;

function configMap(name: string, labels: Record<string, string> = {}, namespace = 'a'): ApiObject {
  return { metadata: { name, namespace, labels } };
}

describe('the store', () => {
  it('stamps every write with a new resource version and refuses stale ones', () => {
    const store = createStore();
    const first = store.create(CONFIGMAPS, configMap('x'));
    const second = store.update(CONFIGMAPS, 'a', 'x', (current) => ({ ...current, data: { a: 'b' } }));
    expect(second).not.toEqual(first);
    expect(() => store.update(CONFIGMAPS, 'a', 'x', () => ({ ...first, data: {} }))).toThrow(
      'the object has been modified',
    );
    expect(store.get(CONFIGMAPS, 'a', 'x')).toEqual(second);
  });

  it('refuses a taken name and a full cluster', () => {
    const store = createStore({ maxObjects: 2 });
    store.create(CONFIGMAPS, configMap('x'));
    expect(() => store.create(CONFIGMAPS, configMap('x'))).toThrow('configmaps "x" already exists');
    store.create(CONFIGMAPS, configMap('y'));
    expect(() => store.create(CONFIGMAPS, configMap('z'))).toThrow('too many objects');
    store.remove(CONFIGMAPS, 'a', 'y');
    expect(() => store.create(CONFIGMAPS, configMap('z'))).not.toThrow();
  });

  it('lists one namespace or all, in order', () => {
    const store = createStore();
    for (const [name, namespace] of [
      ['b', 'n'],
      ['a', 'n'],
      ['c', 'm'],
    ] as const) {
      store.create(CONFIGMAPS, configMap(name, {}, namespace));
    }
    const names = (namespace: string): unknown[] =>
      store.list(CONFIGMAPS, namespace).map((object) => (object['metadata'] as ApiObject)['name']);
    expect(names('n')).toEqual(['a', 'b']);
    expect(names('')).toEqual(['c', 'a', 'b']);
  });
});

describe('a watch', () => {
  it('replays what came after its version, then follows', async () => {
    const store = createStore();
    store.create(CONFIGMAPS, configMap('before'));
    const fromVersion = store.resourceVersion;
    store.create(CONFIGMAPS, configMap('missed'));
    const watcher = store.watch({ resource: CONFIGMAPS, namespace: 'a', selector: all, fromVersion });
    expect(await watcher.next()).toMatchObject({ type: 'ADDED', object: { metadata: { name: 'missed' } } });
    const next = watcher.next();
    store.create(PODS, configMap('other-kind'));
    store.create(CONFIGMAPS, configMap('other-namespace', {}, 'b'));
    store.remove(CONFIGMAPS, 'a', 'before');
    expect(await next).toMatchObject({ type: 'DELETED', object: { metadata: { name: 'before' } } });
  });

  it('shows an object that enters or leaves the selection as added or deleted', async () => {
    const store = createStore();
    store.create(CONFIGMAPS, configMap('x'));
    const selector = parseLabelSelector('on');
    const watcher = store.watch({
      resource: CONFIGMAPS,
      namespace: '',
      selector,
      fromVersion: store.resourceVersion,
    });
    const relabel = (labels: Record<string, string>): void => {
      store.update(CONFIGMAPS, 'a', 'x', (current) => ({
        ...current,
        metadata: { name: 'x', namespace: 'a', labels },
      }));
    };
    relabel({ on: '1' });
    relabel({ on: '2' });
    relabel({});
    relabel({ off: '1' });
    relabel({ on: '3' });
    const types: unknown[] = [];
    for (let count = 0; count < 4; count += 1) types.push((await watcher.next())?.type);
    expect(types).toEqual(['ADDED', 'MODIFIED', 'DELETED', 'ADDED']);
  });

  it('is refused when the history no longer reaches back', () => {
    const store = createStore({ maxHistory: 2 });
    const query = { resource: CONFIGMAPS, namespace: '', selector: all };
    const start = store.resourceVersion;
    for (const name of ['a', 'b', 'c']) store.create(CONFIGMAPS, configMap(name));
    expect(() => store.watch({ ...query, fromVersion: start })).toThrow('too old resource version');
    expect(() => store.watch({ ...query, fromVersion: start + 1 })).not.toThrow();
  });

  it('ends when nobody takes its events', async () => {
    const store = createStore({ maxQueuedEvents: 2 });
    const query = { resource: CONFIGMAPS, namespace: '', selector: all, fromVersion: store.resourceVersion };
    const [slow, fits] = [store.watch(query), store.watch(query)];
    for (const name of ['a', 'b']) store.create(CONFIGMAPS, configMap(name));
    expect((await fits.next())?.type).toBe('ADDED');
    store.create(CONFIGMAPS, configMap('c'));
    expect(await slow.next()).toBeUndefined();
    expect((await fits.next())?.type).toBe('ADDED');
  });
});
