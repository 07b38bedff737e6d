import { describe, expect, it } from 'vitest';
import { isLabelSelector, readFieldSelector } from '../../src/kube/selectors.ts';

describe('label selectors', () => {
  it.each([
    '',
    'x=a,y=b,z=c',
    'x!=a,y=b',
    'x=',
    'x= ',
    'x=,z= ',
    'x= ,z= ',
    '!x',
    'x>1',
    'x>1,z<5',
    'x',
    '!x,y',
    'x in (a)',
    'x in (a,b),y,z notin ()',
    'x in (,)',
    'x in (a,,b)',
    'value in (in)',
    'in in (notin)',
    'notin=in',
    'example.com/key = v',
    'x==a',
    'a\t=\nb',
    'a\0',
    'a=\0b',
    'a \0,,',
  ])('accepts %j', (selector) => {
    expect(isLabelSelector(selector)).toBe(true);
  });

  it.each([
    'x=a||y=b',
    'x==a==b',
    '!x=a',
    'x<a',
    'x>',
    'x>1.1',
    'x>9223372036854775808',
    ',',
    'x,',
    ',x',
    'x in',
    'x in a',
    'x in (a',
    'x in (a b)',
    'x notin (a,b))',
    'x ()',
    '=a',
    '!!x',
    'x=-a',
    'x=a-',
    `x=${'a'.repeat(64)}`,
    `${'a'.repeat(64)}=x`,
    '/key=v',
    'Example.com/key=v',
    'a/b/c=v',
    'x = é',
    'a\0b',
    'a=\0\u00a0',
    'x\u00a0= a',
  ])('refuses %j', (selector) => {
    expect(isLabelSelector(selector)).toBe(false);
  });
});

describe('field selectors', () => {
  it.each<[selector: string, terms: readonly string[] | undefined]>([
    ['', []],
    ['a=1', ['a=1']],
    ['a==1', ['a=1']],
    ['a=', ['a=']],
    ['a!=1', ['a!1']],
    ['b=2,a=1', ['a=1', 'b=2']],
    [',a=1,', ['a=1']],
    ['a=1,b', undefined],
    ['a=1=2', undefined],
    ['a=1\\=2', ['a=1=2']],
    ['a=1\\,b=2', undefined],
    ['a=1\\,b', ['a=1,b']],
    ['a=\\\\', ['a=\\']],
    ['a=\\', undefined],
    ['a=\\b', undefined],
    ['=1', ['=1']],
  ])('%j means %j', (selector, terms) => {
    const parsed = readFieldSelector(selector);
    expect(parsed?.map(({ field, equal, value }) => `${field}${equal ? '=' : '!'}${value}`)).toEqual(terms);
  });
});
