/**
 * Loads pages through a gateway in a real browser, over HTTP/1.1 and HTTP/2 (docs/adr/0011). Each page tries to reach
 * `/api/v1/secrets` in another way. Without the gateway, each attempt must succeed, which proves that the attempt is
 * effective. Through the gateway, the page must not reach the API server.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium, type Browser, type BrowserContext } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RunningGateway } from '../../../src/compose/gateway.ts';
import { createTestAuthority } from '../../support/issued-certificates.ts';
import { findKubectls } from '../rig/kubectl.ts';
import { ensureDebianProgram } from '../rig/debian.ts';
import { startKubectlProxy } from '../support/kubectl-proxy.ts';
import { identityOf, startTestGateway } from '../support/product.ts';
import { listenOn } from '../../support/listen.ts';
import { writeKubeconfig } from '../../support/kubectl.ts';

/** The resource that every page tries to read. */
const LOOT = '/api/v1/secrets';
const GO = `fetch('${LOOT}')`;
const PROGRAM = '/api/v1/namespaces/n/services/web/proxy/';
/** Path of an API group that another server provides; the path looks like a path of the API server itself. */
const OTHER_API = '/apis/pages.example/v1/pages/';

interface EvilPage {
  readonly body: string;
  readonly type?: string;
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** True if current browsers may ignore the attempt, even without the gateway. */
  readonly maybeHarmless?: true;
}

const html = (body: string, headers?: EvilPage['headers']): EvilPage => ({
  body: `<!doctype html><title>evil</title>${body}`,
  ...(headers === undefined ? {} : { headers }),
});
const script = (text: string): EvilPage => html(`<script>${text}</script>`);

const PAGES: Readonly<Record<string, EvilPage>> = {
  'a script': script(GO),
  'a script from a file': html('<script src="evil.js"></script>'),
  'a module': html(`<script type="module">import '${LOOT}'</script>`),
  'fetch without credentials': script(`fetch('${LOOT}', { credentials: 'omit' })`),
  'fetch with credentials': script(`fetch('${LOOT}', { credentials: 'include', mode: 'no-cors' })`),
  'a request that deletes': script(`fetch('${LOOT}/s', { method: 'DELETE' })`),
  XMLHttpRequest: script(`const x = new XMLHttpRequest(); x.open('GET', '${LOOT}'); x.send()`),
  'a beacon': script(`navigator.sendBeacon('${LOOT}', 'x')`),
  'an event source': script(`new EventSource('${LOOT}')`),
  'a WebSocket': script(`new WebSocket('wss://' + location.host + '${LOOT}/exec')`),
  'a worker': script(`new Worker('evil.js')`),
  'a shared worker': script(`new SharedWorker('evil.js')`),
  'a worker of its own text': script(
    `new Worker(URL.createObjectURL(new Blob(["fetch('" + location.origin + "${LOOT}')"])))`,
  ),
  'a service worker': script(
    `navigator.serviceWorker.register('evil.js').then(() => navigator.serviceWorker.ready)`,
  ),
  'a form': html(`<form method="post" action="${LOOT}"></form><script>document.forms[0].submit()</script>`),
  'a form that gets': html(`<form action="${LOOT}"></form><script>document.forms[0].submit()</script>`),
  'a frame': html(`<iframe src="${LOOT}"></iframe>`),
  'a frame with its text': html(`<iframe srcdoc="<script>${GO}</script>"></iframe>`),
  'an object': html(`<object data="${LOOT}" type="text/html"></object>`),
  'an embedded file': html(`<embed src="${LOOT}" type="text/html">`),
  'an image': html(`<img src="${LOOT}">`),
  'a style sheet': html(`<link rel="stylesheet" href="${LOOT}">`),
  'an import of styles': html(`<style>@import url('${LOOT}')</style>`),
  'a background': html(`<style>body { background: url('${LOOT}') }</style>`),
  'a preload': html(`<link rel="preload" as="fetch" href="${LOOT}" crossorigin>`),
  'a preload in a header': html('', { Link: `<${LOOT}>; rel=preload; as=style` }),
  'a refresh': html(`<meta http-equiv="refresh" content="0;url=${LOOT}">`),
  'a refresh in a header': html('', { Refresh: `0;url=${LOOT}` }),
  'a redirect': { body: '', status: 302, headers: { Location: LOOT } },
  'a fetch that is redirected': script(`fetch('a%20redirect')`),
  'a form that is redirected': html(
    '<form method="post" action="a%20redirect"></form><script>document.forms[0].submit()</script>',
  ),
  'a frame that is redirected': html('<iframe src="a%20redirect"></iframe>'),
  'a script that goes there': script(`location.href = '${LOOT}'`),
  'a new window': script(`window.open('${LOOT}')`),
  'a download': html(`<a download href="${LOOT}">x</a><script>document.links[0].click()</script>`),
  'an event of an element': html(`<img src="data:," onerror="${GO}">`),
  SVG: {
    type: 'image/svg+xml',
    body: `<svg xmlns="http://www.w3.org/2000/svg"><script>${GO}</script></svg>`,
  },
  'SVG inside': html(`<svg onload="${GO}"></svg>`),
  XHTML: {
    type: 'application/xhtml+xml',
    body: `<html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title><script>${GO}</script></head></html>`,
  },
  XML: {
    type: 'application/xml',
    body: `<x><script xmlns="http://www.w3.org/1999/xhtml">${GO}</script></x>`,
  },
  XSLT: {
    type: 'application/xml',
    body: `<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="${LOOT}"?><x/>`,
    maybeHarmless: true,
  },
  'no type at all': { type: '', body: `<!doctype html><script>${GO}</script>` },
  PDF: {
    type: 'application/pdf',
    body:
      `%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R/OpenAction<</S/URI/URI(${LOOT})>>>>endobj\n2 0 ` +
      'obj<</Type/Pages/Kids[]/Count 0>>endobj\ntrailer<</Root 1 0 R>>\n',
    maybeHarmless: true,
  },
  'PDF inside': html(
    `<embed type="application/pdf" src="${LOOT}"><object type="application/pdf" data="${LOOT}"></object>`,
  ),
  'rules of speculation': {
    ...html(`<script type="speculationrules">{"prefetch":[{"source":"list","urls":["${LOOT}"]}]}</script>`),
    maybeHarmless: true,
  },
  'a policy of its own': html(`<script>${GO}</script>`, {
    'Content-Security-Policy': 'sandbox allow-scripts allow-same-origin',
    'Access-Control-Allow-Origin': '*',
  }),
};
const NAMES = Object.keys(PAGES);

interface Hostile {
  readonly server: Server;
  readonly url: string;
  readonly caPem: string;
  /** Request lines, including those of upgrades. */
  readonly asked: string[];
}

async function startHostile(): Promise<Hostile> {
  const authority = await createTestAuthority();
  const { keyPem: key, certificatePem: cert } = await authority.issue(['localhost', '127.0.0.1']);
  const asked: string[] = [];
  const server = createServer({ key, cert }, (request, response) => {
    const path = request.url ?? '';
    asked.push(`${request.method} ${path}`);
    const name = decodeURIComponent(path.slice(path.lastIndexOf('/') + 1));
    const evil = PAGES[name];
    if (name === 'evil.js') return void response.setHeader('Content-Type', 'text/javascript').end(GO);
    response.statusCode = evil?.status ?? 200;
    response.setHeader('Cache-Control', 'public, max-age=3600');
    response.setHeader('Set-Cookie', 'stays=1; Path=/');
    response.setHeader('Strict-Transport-Security', 'max-age=3600');
    if (evil?.type !== '') response.setHeader('Content-Type', evil?.type ?? 'text/html');
    for (const [field, value] of Object.entries(evil?.headers ?? {})) response.setHeader(field, value);
    response.end(evil?.body ?? 'plain');
  });
  server.on('upgrade', (request, socket) => {
    asked.push(`UPGRADE ${request.url}`);
    socket.end('HTTP/1.1 403 Forbidden\r\n\r\n');
  });
  const url = `https://127.0.0.1:${await listenOn(server)}`;
  return { server, url, caPem: authority.caPem, asked };
}

let folder: string;
let hostile: Hostile;
/** Path of a kubeconfig for the hostile server. */
let upstream: string;

async function startFront(name: string, policy?: string): Promise<RunningGateway> {
  const file = join(folder, `${name}.yaml`);
  if (policy !== undefined) writeFileSync(file, policy);
  return startTestGateway({
    mode: name === 'noauth' ? 'noauth' : 'auth',
    upstream,
    stateDirectory: join(folder, name),
    identity: identityOf({ login: 'alice@example.com' }, undefined),
    ...(policy === undefined ? {} : { policy: file }),
  });
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tcpages-'));
  hostile = await startHostile();
  const { url, caPem } = hostile;
  upstream = await writeKubeconfig({ directory: folder, url, caPem, token: 't' });
});

afterAll(() => {
  hostile?.server.closeAllConnections();
  hostile?.server.close();
  rmSync(folder, { recursive: true, force: true });
});

const SANDBOX = 'browsers:\n  programPages: sandbox\n';

describe.each([
  ['HTTP/1.1', ['--disable-http2']],
  ['HTTP/2', []],
] as const)('over %s', (protocol, flags) => {
  let browser: Browser;
  let context: BrowserContext;
  const fronts = new Map<string, RunningGateway>();

  beforeAll(async () => {
    browser = await chromium.launch({
      executablePath: ensureDebianProgram('chromium'),
      args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', ...flags],
    });
    context = await browser.newContext({ ignoreHTTPSErrors: true });
    for (const [name, policy] of [
      ['auth', undefined],
      ['sandbox', SANDBOX],
      ['noauth', SANDBOX],
    ] as const)
      fronts.set(name, await startFront(name, policy));
  });

  afterAll(async () => {
    await browser?.close();
    for (const front of fronts.values()) await front.close(100);
  });

  const urlOf = (front: string): string => `https://127.0.0.1:${fronts.get(front)!.port}`;

  /**
   * Opens a page in a new tab and waits until it is idle. Returns the requests to the API server that the page sent.
   */
  async function askedBy(origin: string, path: string): Promise<{ asked: string[]; status: number }> {
    hostile.asked.length = 0;
    const page = await context.newPage();
    try {
      const response = await page.goto(origin + path, { waitUntil: 'networkidle' }).catch(() => null);
      const asked = hostile.asked.filter((line) => !line.endsWith('favicon.ico') && line !== `GET ${path}`);
      return { asked, status: response?.status() ?? 0 };
    } finally {
      for (const each of context.pages()) await each.close();
    }
  }

  it.each(NAMES)('%s reaches nothing', { timeout: 60_000 }, async (name) => {
    const control = await askedBy(hostile.url, PROGRAM + encodeURIComponent(name));
    if (PAGES[name]?.maybeHarmless !== true) expect(control.asked).not.toEqual([]);
    for (const front of ['sandbox', 'noauth']) {
      const { asked } = await askedBy(urlOf(front), PROGRAM + encodeURIComponent(name));
      expect({ front, asked }).toEqual({ front, asked: [] });
    }
    // In mode `auth`, the gateway itself refuses the page of a Service. The gateway serves the page of an API group,
    // but the page cannot reach the API.
    const refused = await askedBy(urlOf('auth'), PROGRAM + encodeURIComponent(name));
    expect(refused).toEqual({ asked: [], status: 403 });
    const other = await askedBy(urlOf('auth'), OTHER_API + encodeURIComponent(name));
    expect(other.asked).toEqual([]);
  });

  it('leaves no cookie, no copy and no worker behind', async () => {
    await context.clearCookies();
    const origin = urlOf('noauth');
    const path = `${PROGRAM}${encodeURIComponent('a service worker')}`;
    for (let visit = 1; visit <= 2; visit += 1) {
      hostile.asked.length = 0;
      const page = await context.newPage();
      await page.goto(origin + path);
      expect(hostile.asked).toContain(`GET ${path}`);
      expect(await page.evaluate('self.origin')).toBe('null');
      await page.close();
    }
    expect(await context.cookies(origin)).toEqual([]);
    expect(context.serviceWorkers()).toEqual([]);
  });

  it(`speaks ${protocol} with the gateway`, async () => {
    const page = await context.newPage();
    await page.goto(`${urlOf('auth')}/version`);
    const spoken = await page.evaluate(`performance.getEntriesByType('navigation')[0].nextHopProtocol`);
    expect(spoken).toBe(protocol === 'HTTP/2' ? 'h2' : 'http/1.1');
    await page.close();
  });

  it('shows pages behind a real kubectl proxy as before', { timeout: 300_000 }, async () => {
    const kubectl = (await findKubectls()).at(-1)!;
    const front = fronts.get('auth')!;
    const url = `https://127.0.0.1:${front.port}`;
    const caPem = front.caPem ?? '';
    const kubeconfig = await writeKubeconfig({ directory: folder, url, caPem, token: 'none' });
    const proxy = await startKubectlProxy(kubectl.path, kubeconfig);
    try {
      const { asked, status } = await askedBy(proxy.url, PROGRAM + encodeURIComponent('a script'));
      expect({ asked, status }).toEqual({ asked: [`GET ${LOOT}`], status: 200 });
    } finally {
      await proxy.close();
    }
  });
});
