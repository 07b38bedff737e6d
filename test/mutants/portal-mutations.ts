/** The checks of the portal, and of the recorder that is asked through it. */
import { inFile, type Mutation } from './mutation.ts';

export const PORTAL: readonly Mutation[] = [
  ...inFile(
    'src/portal/application.ts',
    ['methods', 'if (!allowed.includes(method))', "if (method === 'never')"],
    ['bodies', 'if (client.hasBody) throw', "if (method === 'never') throw"],
    ['problems of a request', 'if (problem !== undefined) throw problem;', ''],
    [
      'who is calling',
      'await gate.recognise(client.inbound, isPage, client.signal)',
      'await gate.recognise({ ...client.inbound, rawHeaders: ["Host", "gateway.lab.ts.net"] }, isPage, client.signal)',
    ],
  ),
  ...inFile(
    'src/portal/recorder-proxy.ts',
    ['what is passed on', 'passed(client.inbound.rawHeaders, PASSED_ON)', '[...client.inbound.rawHeaders]'],
    ['what is passed back', 'passed(rawHeaders, PASSED_BACK)', '[...rawHeaders]'],
    ['shape of what is passed', 'value !== undefined && shape.test(value)', 'value !== undefined'],
    [
      'what is passed is there once',
      'const value = onlyLine(rawHeaders, name);',
      'const value = rawHeaders[rawHeaders.findIndex((text) => text.toLowerCase() === name) + 1];',
    ],
    ['type of an answer', 'status < 300 || status === 304 ? route.type', 'status === 1 ? route.type'],
    ['recheck of a download', 'account.refused(error);\n      stop.abort(error);', 'account.refused(error);'],
    ['places', 'const leave = deps.places.take(caller.identity.nodeId);', 'const leave = () => {};'],
    ['place given back', '    unwatch?.();\n    leave();', '    unwatch?.();'],
    ['no recorder', 'if (recorders.length === 0) throw noRecorder();', ''],
    ['acceptance of a question', 'if (isAccepted(rawHeaders, viewer)) {', 'if (statusCode > 0) {'],
    ['answers without an end', 'if (hasFrame(stream)) answered', 'if (statusCode > 0) answered'],
    ['retries', 'retryDelay: () => null,', ''],
    ['time limits of the package', 'timeout: 0,', ''],
    [
      'head of a question',
      'rewriteRequestHeaders: () => objectOf(fields),',
      'rewriteRequestHeaders: (_request, headers) => ({ ...headers, ...objectOf(fields) }),',
    ],
    ['query of a question', 'queryString: () => route.query.slice(1),', ''],
  ),
  ...inFile('src/portal/pass-body.ts', [
    'a body that stands still',
    'stalled.abort(new Error(`nothing moved',
    'void (new Error(`nothing moved',
  ]),
  ...inFile(
    'src/portal/routes.ts',
    ['length of a query', 'if (rawQuery.length > MAX_QUERY_LENGTH)', 'if (rawQuery.length > 1e9)'],
    [
      'whole first segments',
      'if (!path.startsWith(`${PORTAL_PATH}/`))',
      'if (!path.startsWith(PORTAL_PATH))',
    ],
    [
      'whole recordings',
      '(?:/(cast|playback|transcript|evidence|sidecar|notes|search|live))?$`',
      '(?:/(cast|playback|transcript|evidence|sidecar|notes|search|live))?`',
    ],
    ['parts of a recording', '(cast|playback|transcript|evidence|sidecar|notes|search|live)', '([a-z]+)'],
    [
      'live views without a query',
      "return asked === '' ? { kind: 'live', path } : undefined;",
      "return { kind: 'live', path };",
    ],
  ),
  ...inFile(
    'src/portal/recorder-call.ts',
    [
      'acceptance of a live view',
      "if (answer.kind === 'switched' && !isAccepted(answer.rawHeaders, question.viewer)) {",
      'if (answer.kind === undefined) {',
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
      'who is calling',
      'const caller = await deps.gate.recognise(inbound, false, signal);',
      "const caller = await deps.gate.recognise({ ...inbound, rawHeaders: ['Host', 'gateway.lab.ts.net'] }, true, signal);",
    ],
    [
      'only live views',
      "if (route?.kind !== 'live') throw new TailcastError('NOT_FOUND');",
      "if (route === undefined || !('path' in route)) throw new TailcastError('NOT_FOUND');",
    ],
    ['only WebSockets', "if (upgrade.protocol !== 'websocket' || !KEY.test(key)) {", 'if (!KEY.test(key)) {'],
    [
      'one key',
      "onlyLine(rawHeaders, 'sec-websocket-key') ??",
      "headerLines(rawHeaders, 'sec-websocket-key')[0] ??",
    ],
    ['shape of a key', '|| !KEY.test(key)', ''],
    ['recheck', 'account.refused(error);\n    stop.abort(error);', 'account.refused(error);'],
    ['a view that stands still', "() => cut('nothing moved')", '() => {}'],
    ['places', 'const leave = deps.places.take(caller.identity.nodeId);', 'const leave = () => {};'],
    ['shape of the handshake', 'if (!ACCEPT.test(accept))', "if (accept === 'never')"],
  ),
  ...inFile(
    'src/portal/client.ts',
    ['bodies of requests', "headerLines(rawHeaders, 'transfer-encoding').length > 0 ||", ''],
    [
      'bodies by length',
      "headerLines(rawHeaders, 'content-length').some((value) => value.trim() !== '0')",
      'false',
    ],
  ),
  ...inFile(
    'src/portal/places.ts',
    ['all together', 'if (taken.total >= limits.total)', 'if (taken.total >= 1e9)'],
    ['one node', 'if (taken.takenBy(nodeId) >= limits.perNode)', 'if (taken.total >= 1e9)'],
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
