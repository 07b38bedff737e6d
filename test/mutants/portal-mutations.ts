/** The checks of the portal, and of the recorder behind it. */
import { inFile, type Mutation } from './mutation.ts';

export const PORTAL: readonly Mutation[] = [
  ...inFile(
    'src/portal/application.ts',
    ['methods', 'if (!isAllowed(inbound.method, routeOptions.config))', "if (inbound.method === 'never')"],
    ['HEAD of data', "if (method === 'HEAD') return isFile === true;", "if (method === 'HEAD') return true;"],
    ['POST of data', "(method === 'POST' && isAction === true)", "method === 'POST'"],
    ['bodies', 'if (portal.hasBody) throw', "if (inbound.method === 'never') throw"],
    [
      'who is calling',
      'await gate.recognise(inbound, isPage, signal)',
      'await gate.recognise({ ...inbound, rawHeaders: ["Host", "gateway.lab.ts.net"] }, isPage, signal)',
    ],
    ['length of a query', '|| target.rawQuery.length > MAX_QUERY_LENGTH', ''],
    ['upgrades of live views only', "if (upgrade !== undefined) throw new TailcastError('NOT_FOUND');", ''],
    ['files of the player', '\\\\.(?:css|js|svg|wasm|woff2)$', '$'],
    ['tags of the page', '{ etag: hasTag }', '{ etag: true }'],
    ['times of the page', 'lastModified: false,', ''],
    ['parts of the page', 'acceptRanges: false,', ''],
    ['bytes of a file', "if (portal.inbound.method === 'GET')", ''],
  ),
  ...inFile(
    'src/portal/portal-request.ts',
    ['problems of a request', 'if (this.#problem !== undefined) throw this.#problem;', ''],
    [
      'methods without a route',
      'if (!GATE_METHODS.has(this.inbound.method))',
      'if (this.hasBody && !this.hasBody)',
    ],
    ['bodies of requests', "headerLines(rawHeaders, 'transfer-encoding').length > 0 ||", ''],
    [
      'bodies by length',
      "headerLines(rawHeaders, 'content-length').some((value) => value.trim() !== '0')",
      'false',
    ],
  ),
  ...inFile(
    'src/portal/relay.ts',
    ['recheck', '(error) => access.abort(error)', '() => {}'],
    [
      'log of the recheck',
      'if (access.signal.aborted) account.refused(cause);',
      'if (access.signal.aborted);',
    ],
    ['places', 'const leave = deps.places.take(caller.identity.nodeId);', 'const leave = () => {};'],
    ['place given back', '    unwatch();\n    leave();', '    unwatch();'],
    ['no recorder', 'if (recorders.length === 0)', 'if (recorders.length === 1e9)'],
    ['client left', "else if (left.aborted) account.failed('client left');", ''],
  ),
  ...inFile(
    'src/portal/recorder-proxy.ts',
    [
      'what is passed on',
      '...allowed(inbound.rawHeaders, REQUEST_HEADERS)',
      '...Object.fromEntries(inbound.rawHeaders.flatMap((name, index) => index % 2 === 0 ? [[name, ' +
        'inbound.rawHeaders[index + 1] ?? ""]] : []))',
    ],
    [
      'what is passed back',
      '...allowed(rawHeaders, RESPONSE_HEADERS)',
      '...Object.fromEntries(rawHeaders.flatMap((name, index) => index % 2 === 0 ? [[name, rawHeaders[index + 1] ' +
        '?? ""]] : []))',
    ],
    ['shape of what is passed', 'value !== undefined && form.test(value)', 'value !== undefined'],
    [
      'what is passed is there once',
      'const value = onlyLine(rawHeaders, name);',
      'const value = rawHeaders[rawHeaders.findIndex((text) => text.toLowerCase() === name) + 1];',
    ],
    ['type of an answer', 'isGood ? type : JSON_TYPE', 'JSON_TYPE'],
    ['acceptance of a question', 'if (isAccepted(rawHeaders, viewer)) {', 'if (statusCode > 0) {'],
    ['answers without an end', 'if (hasFrame(stream)) answered', 'if (statusCode > 0) answered'],
    ['retries', 'retryDelay: () => null,', ''],
    ['time limits of the package', 'timeout: 0,', ''],
    [
      'head of a question',
      'rewriteRequestHeaders: () => ({ ...headers }),',
      'rewriteRequestHeaders: (_request, given) => ({ ...given, ...headers }),',
    ],
    ['query of a question', 'queryString: () => target.rawQuery,', ''],
    ['whole recordings', "[0-9T:.-]{19,29}Z$)'", "[0-9T:.-]{19,29}Z.*$)'"],
    [
      'parts of a recording',
      '(^(?:cast|playback|transcript|evidence|sidecar|notes|review|search|orders)$)',
      '',
    ],
  ),
  ...inFile('src/portal/pass-body.ts', [
    'a body that stands still',
    'stalled.abort(new Error(`nothing moved',
    'void (new Error(`nothing moved',
  ]),
  ...inFile(
    'src/portal/recorder-call.ts',
    [
      'acceptance of a live view',
      "if (answer.kind === 'switched' && !isAccepted(answer.rawHeaders, question.viewer))",
      'if (answer.kind === undefined)',
    ],
    [
      'whom the recorder took for the viewer',
      'onlyLine(rawHeaders, VIEWER_ACCEPTED_HEADER) === viewer.nodeId',
      'onlyLine(rawHeaders, VIEWER_ACCEPTED_HEADER) !== undefined',
    ],
  ),
  ...inFile(
    'src/portal/live-view.ts',
    [
      'live views without a query',
      "if (portal.target.rawQuery !== '') throw new TailcastError('NOT_FOUND');",
      '',
    ],
    ['only WebSockets', "if (upgrade.protocol !== 'websocket' || !KEY.test(key)) {", 'if (!KEY.test(key)) {'],
    [
      'one key',
      "onlyLine(rawHeaders, 'sec-websocket-key') ??",
      "headerLines(rawHeaders, 'sec-websocket-key')[0] ??",
    ],
    ['shape of a key', '|| !KEY.test(key)', ''],
    ['a view that stands still', '() => stalled.abort()', '() => {}'],
    ['shape of the handshake', 'if (ACCEPT.test(accept))', "if (accept !== 'never')"],
  ),
  ...inFile(
    'src/portal/places.ts',
    ['all together', 'if (taken.total >= limits.total)', 'if (taken.total >= 1e9)'],
    ['one node', 'if (taken.usedBy(nodeId) >= limits.perNode)', 'if (taken.total >= 1e9)'],
  ),
  ...inFile('src/portal/refusal.ts', [
    'markup in a sentence',
    'text.replaceAll(/[&<>"\']/g, (character) => `&#${character.charCodeAt(0)};`)',
    'text',
  ]),
  ...inFile(
    'src/tsrecorder/serving/viewer-access.ts',
    ['trusted gateways only', 'if (!mayNameViewers(options.trustedGateways, caller)) return caller;', ''],
    [
      'unclear viewers',
      "if (named === 'malformed') {",
      "if (named === 'malformed') return caller;\n      if (named === undefined && rawHeaders.length === 0) {",
    ],
  ),
  ...inFile('src/tsrecorder/serving/viewing.ts', [
    'a tag is no login',
    'trusted.some((name) => name === nodeId || tags.includes(name))',
    "trusted.some((name) => name === nodeId || [...tags, 'tag:k8s'].includes(name) || tags.length > 0)",
  ]),
  ...inFile(
    'src/wire/recorder-api/named-viewer.ts',
    ['fields that are known', 'KNOWN.has(name) && found', 'found'],
    ['fields that are there once', '&& found.get(name)?.length === 1', ''],
    ['words', '.every((word) => WORD.test(word))', '.every((word) => word !== undefined)'],
    ['a person has no tags', 'WORD.test(user) && tags.length === 0', 'WORD.test(user)'],
    ['tags', '&& tags.every((tag) => TAG.test(tag))', ''],
  ),
];

export const PORTAL_SUITES: Readonly<Record<string, readonly string[]>> = {
  'src/portal/application.ts': [
    'test/attack/portal.test.ts',
    'test/portal/portal.test.ts',
    'test/portal/recorder-proxy.test.ts',
  ],
  'src/portal/recorder-proxy.ts': [
    'test/attack/portal.test.ts',
    'test/portal/portal.test.ts',
    'test/portal/recorder-proxy.test.ts',
  ],
  'src/portal/pass-body.ts': ['test/portal/portal.test.ts'],
  'src/portal/relay.ts': ['test/attack/portal.test.ts', 'test/portal/portal.test.ts'],
  'src/portal/recorder-call.ts': ['test/attack/portal.test.ts', 'test/portal/portal.test.ts'],
  'src/portal/live-view.ts': ['test/attack/portal.test.ts', 'test/portal/portal.test.ts'],
  'src/portal/portal-request.ts': ['test/attack/portal.test.ts', 'test/portal/portal.test.ts'],
  'src/portal/places.ts': ['test/portal/portal.test.ts'],
  'src/portal/refusal.ts': ['test/portal/portal.test.ts'],
};
