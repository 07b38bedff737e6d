import { describe, expect, it } from 'vitest';
import { jsonPatch, mergePatch, strategicMergePatch } from '../../src/demo/patch.ts';

describe('a merge patch', () => {
  // RFC 7386, appendix A
  it.each([
    [{ a: 'b' }, { a: 'c' }, { a: 'c' }],
    [{ a: 'b' }, { b: 'c' }, { a: 'b', b: 'c' }],
    [{ a: 'b', b: 'c' }, { a: null }, { b: 'c' }],
    [{ a: ['b'] }, { a: 'c' }, { a: 'c' }],
    [{ a: { b: 'c' } }, { a: { b: 'd', c: null } }, { a: { b: 'd' } }],
    [{ a: [{ b: 'c' }] }, { a: [1] }, { a: [1] }],
    [{ e: null }, { a: 1 }, { e: null, a: 1 }],
    [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
  ])('turns %j with %j into %j', (target, patch, result) => {
    expect(mergePatch(target, patch)).toEqual(result);
  });

  it('does not reach the prototype', () => {
    const patched = mergePatch({}, JSON.parse('{"__proto__":{"polluted":true}}'));
    expect(Reflect.get({}, 'polluted')).toBeUndefined();
    expect(Object.keys(patched as object)).toEqual(['__proto__']);
  });
});

describe('a strategic merge patch', () => {
  const pod = {
    spec: {
      containers: [
        { name: 'a', image: '1', env: [{ name: 'X', value: '1' }], args: ['x'] },
        { name: 'b', image: '1' },
      ],
      finalizers: ['one', 'two'],
    },
  };

  it('merges lists by their keys and replaces the others', () => {
    const patch = {
      spec: {
        $setElementOrder: [],
        containers: [
          { name: 'a', env: [{ name: 'Y', value: '2' }], args: ['y'] },
          { name: 'c', image: '3' },
        ],
      },
    };
    expect(strategicMergePatch(pod, patch)).toMatchObject({
      spec: {
        containers: [
          {
            name: 'a',
            image: '1',
            env: [
              { name: 'X', value: '1' },
              { name: 'Y', value: '2' },
            ],
            args: ['y'],
          },
          { name: 'b', image: '1' },
          { name: 'c', image: '3' },
        ],
      },
    });
  });

  it('obeys its directives', () => {
    const patch = {
      spec: {
        containers: [{ name: 'a', $patch: 'delete' }],
        '$deleteFromPrimitiveList/finalizers': ['one'],
        '$setElementOrder/finalizers': ['two'],
      },
    };
    expect(strategicMergePatch(pod, patch)).toEqual({
      spec: { containers: [{ name: 'b', image: '1' }], finalizers: ['two'] },
    });
    const replaced = strategicMergePatch(pod, { spec: { $patch: 'replace', nodeName: 'n' } });
    expect(replaced).toEqual({ spec: { nodeName: 'n' } });
    const retained = strategicMergePatch({ a: 1, b: 2 }, { $retainKeys: ['b', 'c'], c: 3 });
    expect(retained).toEqual({ b: 2, c: 3 });
  });
});

describe('a JSON patch', () => {
  it('adds, replaces, removes, copies, moves and tests', () => {
    const operations = [
      { op: 'test', path: '/a~1b', value: 1 },
      { op: 'add', path: '/list/1', value: 'x' },
      { op: 'add', path: '/list/-', value: 'z' },
      { op: 'remove', path: '/list/0' },
      { op: 'copy', from: '/list/0', path: '/copied' },
      { op: 'move', from: '/a~1b', path: '/moved' },
      { op: 'replace', path: '/object/k', value: { deep: true } },
    ];
    expect(jsonPatch({ 'a/b': 1, list: ['a', 'y'], object: { k: 0 } }, operations)).toEqual({
      list: ['x', 'y', 'z'],
      copied: 'x',
      moved: 1,
      object: { k: { deep: true } },
    });
  });

  it.each([
    [[{ op: 'remove', path: '/missing' }], 'does not exist'],
    [[{ op: 'replace', path: '/list/2', value: 1 }], 'does not exist'],
    [[{ op: 'add', path: '/list/3', value: 1 }], 'out of range'],
    [[{ op: 'add', path: '/no/where', value: 1 }], 'does not exist'],
    [[{ op: 'test', path: '/list/0', value: 'b' }], 'testing value'],
    [[{ op: 'make', path: '/x' }], 'unexpected operation'],
    [{ op: 'remove' }, 'array of operations'],
  ])('refuses %j', (operations, message) => {
    expect(() => jsonPatch({ list: ['a', 'b'] }, operations)).toThrow(message);
  });
});
