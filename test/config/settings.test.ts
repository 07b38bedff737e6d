import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readConfigFile } from '../../src/config/file.ts';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { RECORDER_SETTINGS } from '../../src/config/recorder.ts';
import { environmentName, flagName, readSettings, type SettingSources } from '../../src/config/settings.ts';
import { byteSize, listenAddress, originList, textList, wholeNumber } from '../../src/config/values.ts';
import { TailcastError } from '../../src/errors.ts';

describe('settings', () => {
  it('has the promised defaults', () => {
    const recorder = readSettings(RECORDER_SETTINGS, sources({}));
    // defaults: the file layout of tsrecorder, and a minimum age of one day before a recording is removed
    expect(recorder).toMatchObject({ eventLayout: 'reference', minRetentionDays: 1 });
  });

  it('has one name in every place', () => {
    expect(flagName('proxyProtocol')).toBe('--proxy-protocol');
    expect(environmentName('proxyProtocol')).toBe('TAILCAST_PROXY_PROTOCOL');
  });

  it('takes the command line over the environment over the file over the default', () => {
    const file = new Map<string, unknown>([
      ['mode', 'noauth'],
      ['drainSeconds', 1],
      ['logLevel', 'debug'],
    ]);
    const environment = { TAILCAST_DRAIN_SECONDS: '2', TAILCAST_LOG_LEVEL: 'warn' };
    const config = readSettings(
      GATEWAY_SETTINGS,
      sources({ flags: { logLevel: 'error' }, environment, file }),
    );
    expect(config).toMatchObject({
      mode: 'noauth',
      drainSeconds: 2,
      logLevel: 'error',
      proxyProtocol: 'off',
    });
    expect(Object.isFrozen(config)).toBe(true);
  });

  it('reports every problem at once, naming key and place', () => {
    const problem = problemOf(() =>
      readSettings(
        GATEWAY_SETTINGS,
        sources({
          flags: { listen: 'nonsense' },
          environment: { TAILCAST_DRAIN_SECONDS: '-1', TAILCAST_PROXY_PROTOCL: 'require', HOME: '/x' },
          file: new Map<string, unknown>([['mod', 'auth']]),
        }),
      ),
    );
    expect(problem).toContain('--listen: host:port is expected');
    expect(problem).toContain('TAILCAST_DRAIN_SECONDS: a whole number from 0');
    expect(problem).toContain(
      'TAILCAST_PROXY_PROTOCL: no such setting; did you mean TAILCAST_PROXY_PROTOCOL?',
    );
    expect(problem).toContain('mod in test.yaml: no such setting; did you mean mode?');
    expect(problem.split('\n')).toHaveLength(4);
  });

  it('suggests nothing for a name that is like no other', () => {
    for (const name of ['TAILCAST_FOO', 'TAILCAST_X', 'TAILCAST_UIX_SETTING']) {
      const problem = problemOf(() =>
        readSettings(GATEWAY_SETTINGS, sources({ environment: { [name]: '1' } })),
      );
      expect(problem).toContain(`${name}: no such setting`);
      expect(problem).not.toContain('did you mean');
    }
  });

  it('passes over what the kubelet says of services whose names begin with tailcast', () => {
    const links = [
      'TAILCAST_SERVICE_HOST',
      'TAILCAST_SERVICE_PORT',
      'TAILCAST_SERVICE_PORT_HTTPS',
      'TAILCAST_PORT',
      'TAILCAST_PORT_443_TCP',
      'TAILCAST_RECORDER_SERVICE_HOST',
      'TAILCAST_RECORDER_PORT_8080_TCP_ADDR',
    ];
    const environment = Object.fromEntries(links.map((name) => [name, 'tcp://10.0.0.1:443']));
    expect(readSettings(GATEWAY_SETTINGS, sources({ environment })).mode).toBe('auth');
    expect(
      problemOf(() => readSettings(GATEWAY_SETTINGS, sources({ environment: { TAILCAST_SUPPORT: '1' } }))),
    ).toContain('TAILCAST_SUPPORT: no such setting');
  });

  it('does not take members of Object for settings', () => {
    const file = new Map<string, unknown>([
      ['constructor', 1],
      ['__proto__', 2],
    ]);
    expect(problemOf(() => readSettings(RECORDER_SETTINGS, sources({ file })))).toContain(
      'constructor in test.yaml',
    );
  });
});

describe('values', () => {
  it('reads listen addresses', () => {
    expect(listenAddress('127.0.0.1:8443')).toEqual({ host: '127.0.0.1', port: 8443 });
    expect(listenAddress('[::1]:0')).toEqual({ host: '::1', port: 0 });
    expect(listenAddress(':80')).toEqual({ host: '::', port: 80 });
    for (const bad of ['8443', '::1:80', 'a:65536', 'a:', 'a b:1', '', 7]) {
      expect(() => listenAddress(bad), String(bad)).toThrow('host:port');
    }
  });

  it('reads sizes with units and refuses what is out of bounds', () => {
    const size = byteSize(1024, 1024 ** 3);
    expect([size('1KiB'), size('8MiB'), size(2048), size('1GiB')]).toEqual([1024, 8388608, 2048, 1073741824]);
    for (const bad of ['1023', '1MB', '-1', '1025MiB', 'many', 1.5, null])
      expect(() => size(bad)).toThrow('size');
  });

  it('reads origins and refuses what no browser would write', () => {
    expect(originList('https://dash.example, http://localhost:4466')).toEqual([
      'https://dash.example',
      'http://localhost:4466',
    ]);
    expect(originList(['HTTPS://Dash.Example'])).toEqual(['https://dash.example']);
    for (const wrong of [
      'null',
      'dash.example',
      'https://dash.example/',
      'https://a.example/b',
      'file://',
      '*',
    ])
      expect(() => originList(wrong)).toThrow('an origin such as');
  });

  it('reads lists from YAML and from text', () => {
    expect(textList(['a', ' b '])).toEqual(['a', 'b']);
    expect(textList('a, b,,')).toEqual(['a', 'b']);
  });

  it('accepts exactly the whole numbers within bounds', () => {
    const parse = wholeNumber(3, 9);
    fc.assert(
      fc.property(fc.integer({ min: -20, max: 20 }), (value) => {
        const accepted = [value, String(value)].map((raw) => {
          try {
            return parse(raw);
          } catch {
            return undefined;
          }
        });
        expect(accepted).toEqual(value >= 3 && value <= 9 ? [value, value] : [undefined, undefined]);
      }),
    );
  });
});

describe('configuration files', () => {
  it('reads YAML and says what is wrong with what it cannot read', () => {
    const directory = mkdtempSync(join(tmpdir(), 'tailcast-config-'));
    try {
      const path = join(directory, 'a.yaml');
      writeFileSync(path, 'mode: noauth\ntlsNames: [a, b]\n');
      expect(Object.fromEntries(readConfigFile(path).entries)).toEqual({
        mode: 'noauth',
        tlsNames: ['a', 'b'],
      });
      writeFileSync(path, '');
      expect(readConfigFile(path).entries.size).toBe(0);
      writeFileSync(path, 'mode: auth\nmode: noauth\n');
      expect(problemOf(() => readConfigFile(path))).toContain('the key occurs twice');
      writeFileSync(path, '- a\n');
      expect(problemOf(() => readConfigFile(path))).toContain('mapping of settings');
      expect(problemOf(() => readConfigFile(join(directory, 'none')))).toContain('cannot be read');
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});

function sources(given: {
  flags?: Record<string, unknown>;
  environment?: Record<string, string>;
  file?: ReadonlyMap<string, unknown>;
}): SettingSources {
  return {
    flags: new Map(Object.entries(given.flags ?? {})),
    environment: new Map(Object.entries(given.environment ?? {})),
    file: given.file === undefined ? undefined : { path: 'test.yaml', entries: given.file },
  };
}

function problemOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    if (error instanceof TailcastError && error.code === 'CONFIG_INVALID') return error.detail ?? '';
    throw error;
  }
  throw new Error('no problem was found');
}
