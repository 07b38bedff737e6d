/**
 * Each check between a client and the API server, and its removal. A mutation names the text that it replaces, which
 * must occur once in its file. Change the mutation together with that code; `run.ts` reports mutations that no longer
 * match.
 *
 * This list omits checks that are redundant on purpose, such as the last check of a request line before it is
 * written. The removal of one of those has no visible effect.
 */
import { inFile, type Mutation } from './mutation.ts';
import { ACCESS, ACCESS_SUITES } from './access-mutations.ts';
import { CLUSTERS, CLUSTER_SUITES } from './cluster-mutations.ts';
import { NOTIFICATIONS, NOTIFICATION_SUITES } from './notification-mutations.ts';
import { PORTAL, PORTAL_SUITES } from './portal-mutations.ts';
import { REQUESTS } from './request-mutations.ts';

export type { Mutation } from './mutation.ts';

const GATE = inFile(
  'src/proxy/gate/gate.ts',
  ['methods', 'if (!GATE_METHODS.has(method))', 'if (method === "never")'],
  ['size of the head', '> MAX_HEAD_BYTES)', '> 1e9)'],
  ['length of header names', 'if (name.length > MAX_HEADER_NAME_BYTES)', 'if (name.length > 1e9)'],
  ['exactly one Host', 'if (hosts.length !== 1)', 'if (hosts.length > 1e9)'],
  ['foreign pages', 'refuseForeignPages(fields, pages);', ''],
  ['our own paths', 'refuseReserved(target, deps.refusedSegments);', ''],
  [
    'portal: foreign pages',
    'refuseForeignPages(isLink ? { ...fields, fetchSites: [] } : fields, noDashboards);',
    '',
  ],
  ['portal: links only to pages', "const isLink = page && request.method === 'GET' &&", 'const isLink ='],
  ['portal: links are read', "request.method === 'GET' && isFollowedLink", 'isFollowedLink'],
  ['portal: pages of dashboards', '{ ...rules.pages, dashboardOrigins: NO_NAMES }', '{ ...rules.pages }'],
  ['refusal by policy', "if (action === 'refuse') {", 'if (request.requestClass === undefined) {'],
  ['refused ports in the query', "if (policyClass === 'portForward') refusePorts(policy, target);", ''],
  [
    'what must be recorded and cannot be',
    "if (action === 'record' && !upgrade && recording.mode === 'failClosed') {",
    'if (policyClass === undefined) {',
  ],
  ['recording', "record: recorders && action === 'record',", 'record: false,'],
  [
    'events of a class',
    "event: recorders && (recording.events || action === 'event'),",
    'event: recorders && recording.events,',
  ],
  [
    'events of ordinary requests',
    'record: false, event: recorders && recording.events };',
    'record: false, event: false };',
  ],
  [
    'required bodies',
    "...(action === 'event' && isBodyRequired(",
    '...(action === "refuse" && isBodyRequired(',
  ],
  ['audit id of ours', 'auditId: id,', ''],
  ['confirm: node', 'if (identity.nodeId !== admission.identity.nodeId)', 'if (identity.nodeId === "")'],
  ['confirm: user', 'if (impersonation?.user !== before?.user)', 'if (impersonation?.user === "")'],
  ['confirm: groups', 'if (missing !== undefined)', 'if (missing === "")'],
  [
    'confirm: enforcement',
    "if (recording.mode === 'failClosed' && admission.recording.mode !== 'failClosed') {",
    'if (recording.mode === undefined) {',
  ],
);

const PAGES = inFile(
  'src/proxy/gate/browser-guard.ts',
  [
    'names of the gateway',
    'if (hostNames.size > 0 && !hostNames.has(withoutPort(host)))',
    'if (hostNames.size > 1e9)',
  ],
  ['Origin', '!isOwnOrigin(origin, host) &&', 'false &&'],
  ['origins of dashboards', '!dashboardOrigins.has(origin.toLowerCase())', 'dashboardOrigins.size === 0'],
  ['dashboards that are named', '!dashboardOrigins.has(origin.toLowerCase())', 'dashboardOrigins.size === 0'],
  ['links: mode', "says('sec-fetch-mode', 'navigate') &&", ''],
  ['links: no frames', "&& says('sec-fetch-dest', 'document')", ''],
  ['links: said in its place', 'onlyLine(rawHeaders, name) === value', 'rawHeaders.includes(value)'],
  ['Sec-Fetch-Site', '!OWN_SITES.has(site.toLowerCase())', 'site === "never"'],
  ['sibling sites', "new Set(['same-origin', 'none'])", "new Set(['same-origin', 'same-site', 'none'])"],
  [
    'whole host names',
    'withoutDefaultPort(authority) === withoutDefaultPort(host)',
    'authority.startsWith(host)',
  ],
);

const POLICY = inFile(
  'src/proxy/gate/policy.ts',
  ['kubelet: methods that read', "verb === 'get' && KUBELET_READS", 'KUBELET_READS'],
  ['kubelet: known paths', 'KUBELET_READS.has(first) && PLAIN_PATH', 'PLAIN_PATH'],
  ['kubelet: plain paths', '&& PLAIN_PATH.test(rawPath)', '&& rawPath !== ""'],
  [
    'kubelet: upgrades',
    "nodeProxy: ['kubeletRead', 'kubeletExec']",
    "nodeProxy: ['kubeletRead', 'kubeletRead']",
  ],
  ['default: kubelet', "kubeletExec: 'refuse'", "kubeletExec: 'allow'"],
  ['default: pod proxy', "podProxyUpgrade: 'refuse'", "podProxyUpgrade: 'allow'"],
  ['default: service proxy', "serviceProxyUpgrade: 'refuse'", "serviceProxyUpgrade: 'allow'"],
  ['default: opaque upgrades', "opaqueUpgrade: 'refuse'", "opaqueUpgrade: 'allow'"],
  ['default: port-forward events', "portForward: 'event'", "portForward: 'allow'"],
  ['default: events of changes of access', "accessChange: 'event'", "accessChange: 'allow'"],
  ['default: ephemeral container events', "ephemeralContainers: 'event'", "ephemeralContainers: 'allow'"],
  ['default: workload events', "workload: 'event'", "workload: 'allow'"],
  ['default: events of custom resources', "customResource: 'event'", "customResource: 'allow'"],
  ['default: events of read Secrets', "secretRead: 'event'", "secretRead: 'allow'"],
  ['default: workloads that cannot be read', "unreadableWorkloads: 'refuse'", "unreadableWorkloads: 'event'"],
  [
    'watches of Secrets over WebSocket',
    "secretRead: ['secretRead', 'secretRead']",
    "secretRead: ['secretRead', 'streamUpgrade']",
  ],
  ['enforcement', "recording.mode === 'failClosed' || (policyClass", 'false || (policyClass'],
  [
    'unknown upgrades where a recorder is named',
    "(policyClass === 'opaqueUpgrade' && recording.mode !== 'off')",
    'false',
  ],
  [
    'bodies of workloads',
    "policyClass === 'workload' || policyClass === 'ephemeralContainers'",
    "policyClass === 'ephemeralContainers'",
  ],
  [
    'bodies of ephemeral containers',
    "policyClass === 'workload' || policyClass === 'ephemeralContainers'",
    "policyClass === 'workload'",
  ],
  ['port ranges', 'port >= first && port <= last', 'port === first'],
);

const HEADERS = inFile(
  'src/kube/headers.ts',
  ['family: impersonate', "name.startsWith('impersonate') ?", "name === 'impersonate-user' ?"],
  ['family: proxy-', "name.startsWith('proxy-') ?", "name === 'proxy-authorization' ?"],
  ['family: tailscale', "name.startsWith('tailscale') ? 'identity'", "name === 'tailscale' ? 'identity'"],
  ['family: x-remote', "if (name.startsWith('x-remote'))", "if (name === 'x-remote-user')"],
  ['family: x-b3', "if (name.startsWith('x-b3-'))", "if (name === 'x-b3-')"],
  ['family: x-forwarded', "name.startsWith('x-forwarded') ?", "name === 'x-forwarded' ?"],
  ['authorization', "  ['authorization', 'credential'],\n", ''],
  ['cookie', "  ['cookie', 'cookie'],\n", ''],
  ['forwarded', "  ['forwarded', 'forwarded'],\n", ''],
  ['x-real-ip', "  ['x-real-ip', 'forwarded'],\n", ''],
  ['audit-id', "  ['audit-id', 'auditId'],\n", ''],
  ['traceparent', "  ['traceparent', 'trace'],\n", ''],
  ['x-request-id', "  ['x-request-id', 'trace'],\n", ''],
  ['te', "  ['te', 'hopByHop'],\n", ''],
  ['trailer', "  ['trailer', 'hopByHop'],\n", ''],
  ['keep-alive', "  ['keep-alive', 'hopByHop'],\n", ''],
  ['http2-settings', "  ['http2-settings', 'hopByHop'],\n", ''],
  ['WebSocket extensions', "  ['sec-websocket-extensions', 'extensions'],\n", ''],
  [
    'names that fold',
    "if (headerFamily(dashed) !== 'ordinary' || headerFamily(squeezed) !== 'ordinary') {",
    'if (dashed === "") {',
  ],
  ['names that are no tokens', 'if (!TOKEN.test(name))', 'if (name === "never")'],
  [
    'values of one line',
    'if ((code >= 0x20 && code < 0x7f) || code === 0x09 || (code >= 0x80 && code <= 0xff)) continue;',
    'continue;',
  ],
  [
    'spacing around Connection tokens',
    'const token = part.trim().toLowerCase();',
    'const token = part.toLowerCase();',
  ],
  ['fields that Connection names', 'if (!names.has(name.toLowerCase())) kept.push', 'kept.push'],
  [
    'bearer subprotocols',
    "protocol !== '' && !protocol.toLowerCase().startsWith(BEARER_SUBPROTOCOL)",
    "protocol !== ''",
  ],
  [
    'bearer subprotocols in any case',
    'if (!value.toLowerCase().includes(BEARER_SUBPROTOCOL))',
    'if (!value.includes(BEARER_SUBPROTOCOL))',
  ],
  ['assertStripped', 'if (found !== undefined && !except.includes(found)) {', 'if (found === "") {'],
  ['assertImpersonates', "if (found !== 1 || user === '')", 'if (found > 1e9)'],
  ['response hop-by-hop fields', 'if (RESPONSE_HOP_BY_HOP.has(name)) return true;', ''],
  ['response cookies', 'return RESPONSE_HOST_BOUND.has(name) &&', 'return false &&'],
);

const IMPERSONATION = [
  ...inFile(
    'src/impersonation/apply.ts',
    [
      'only ordinary fields',
      "} else if (family === 'ordinary') {",
      "} else if (family === 'ordinary' || family === 'identity') {",
    ],
    [
      'credentials in auth mode',
      "} else if (family === 'ordinary') {",
      "} else if (family === 'ordinary' || family === 'credential') {",
    ],
    ['tokens of Connection before our fields', 'withoutNamed(kept, connection) : kept;', 'kept : kept;'],
    ['token and no protocol', 'if (scan.strippedProtocol) requireSubprotocol(kept);', ''],
    [
      'unknown impersonation headers',
      "throw new TailcastError('HEADER_REFUSED', `${name} is not a known impersonation header`);",
      'return;',
    ],
    ['keys of extras', "if (key === '' || key !== key.toLowerCase())", 'if (key === "never")'],
    ['escapes in keys of extras', 'EXTRA_KEY_CHARACTER.test(character)', 'character !== ""'],
    ['controls in identity values', 'if (code < 0x20 || code === 0x7f)', 'if (code < 0)'],
    ['Impersonate-User', 'headers.push(`${prefix}-User`, user);', ''],
    ['Impersonate-Group', 'headers.push(`${prefix}-Group`, latin1Utf8(group));', ''],
    [
      'impersonation of others',
      '!passes && request.judged !== true) refuse',
      '!passes && request.judged === true) refuse',
    ],
    ['another user', "name === 'impersonate-user' && value === ownUser", "name === 'impersonate-user'"],
    ['some groups', 'group !== EVERY_USER && !named.has(group)', 'false'],
  ),
  ...inFile(
    'src/impersonation/target.ts',
    ['the placeholder', 'if (user.toLowerCase() === TAGGED_PLACEHOLDER) {', 'if (user === "never") {'],
    ['system: users', "if (user.toLowerCase().startsWith('system:')) {", 'if (user === "never") {'],
    ['empty names', "if (name === '') throw", "if (name === 'never') throw"],
    ['spaces around names', 'if (name.trim() !== name) throw', 'if (name === "never") throw'],
    ['unprintable names', 'if (UNPRINTABLE.test(name))', 'if (name === "never")'],
    ['long names', 'new TextEncoder().encode(name).length > MAX_NAME_BYTES', 'name.length > 1e9'],
    ['number of groups', 'if (granted.size > MAX_GROUPS) {', 'if (granted.size > 1e9) {'],
  ),
];

const TARGETS = inFile(
  'src/kube/canonical-target.ts',
  ['length of targets', 'if (raw.length > MAX_TARGET_LENGTH)', 'if (raw.length > 1e9)'],
  ['length of paths', 'if (rawPath.length > MAX_PATH_LENGTH)', 'if (rawPath.length > 1e9)'],
  ['origin form', 'if (raw.charCodeAt(0) !== SLASH)', 'if (raw === "never")'],
  ['characters', 'if (code <= 0x20 || code >= 0x7f) refuse', 'if (code < 0) refuse'],
  ['fragments', 'if (code === 0x23) refuse', 'if (code < 0) refuse'],
  ['backslashes', 'if (code === 0x5c && index < pathLength) refuse', 'if (code < 0) refuse'],
  ['empty segments', "refuse('its path holds an empty segment');", ''],
  ['dot segments', "if (segment === '.' || segment === '..') refuse", 'if (segment === "never") refuse'],
  ['encoded slashes', 'if (code === SLASH || code === 0x5c) refuse', 'if (code < 0) refuse'],
  ['double encoding', 'if (code === 0x25) refuse', 'if (code < 0) refuse'],
  ['parameters of segments', 'if (code === 0x3b) refuse', 'if (code < 0) refuse'],
  ['dot segments in app parts', 'if (climbs(rest)) refuse', 'if (rest === "never") refuse'],
  ['controls', 'if (code < 0x20 || (code >= 0x7f && code <= 0x9f)) refuse', 'if (code < 0) refuse'],
  [
    'bad escapes',
    "throw new TailcastError('REQUEST_NOT_CANONICAL', 'its path holds a bad percent-encoding', { cause });",
    'decoded = raw; void cause;',
  ],
  [
    'number of parameters',
    'if (texts.length > MAX_QUERY_PARAMETERS) refuse',
    'if (texts.length > 1e9) refuse',
  ],
  [
    'first value counts',
    'if (pair[0] === name) return pair[1];',
    'if (pair[0] === name && query.at(-1) === pair) return pair[1];',
  ],
  [
    'empty flags are true',
    "return value !== undefined && value !== '0'",
    "return value !== undefined && value !== '' && value !== '0'",
  ],
);

const CLASSES = inFile(
  'src/kube/interactive.ts',
  ['upgrades of what is no resource', "if (request.upgrade) return 'opaqueUpgrade';", ''],
  ['the /proxy/ verb', "if (info.verb === 'proxy') {", 'if (info.verb === "never") {'],
  ['upgrades of what is unknown', "if (!isStream(info)) return 'opaqueUpgrade';", ''],
  [
    'streams of Secrets',
    "return isSecretRead(info) ? 'secretRead' : 'streamUpgrade';",
    "return 'streamUpgrade';",
  ],
  ['workloads', "if (isWorkload(info)) return info.subresource === '' ? 'workload' : undefined;", ''],
  ['custom resources', "return 'customResource';", "return 'plain';"],
  ['Secrets that are read', "if (isSecretRead(info)) return 'secretRead';", ''],
  ['identities of resources', "return resource.split(':', 1)[0] ?? '';", 'return resource;'],
  ['exec', "subresource === 'exec' || subresource === 'attach'", "subresource === 'attach'"],
  ['attach', "subresource === 'exec' || subresource === 'attach'", "subresource === 'exec'"],
  ['port-forward', "return resource === 'pods' ? 'portForward' : undefined;", 'return undefined;'],
  ['node proxy', "return 'nodeProxy';", 'return undefined;'],
  ['pod proxy', "return 'podProxy';", 'return undefined;'],
  ['service proxy', "return 'serviceProxy';", 'return undefined;'],
  ['changes of access', "return 'accessChange';", "return 'plain';"],
  ['tokens of accounts', "(resource === 'serviceaccounts' &&", '(resource === "" &&'],
  ['Secrets', "return resource === 'secrets' ||", 'return'],
  ['other proxies', "if (info.parts.includes('proxy', 2)) return 'otherProxy';", ''],
  ['proxies of other groups', "subresource !== 'proxy' || apiPrefix !== 'api'", "subresource !== 'proxy'"],
  ['proxies of no resource', "if (info.path.split('/').includes('proxy')) return 'otherProxy';", ''],
  ['unknown subresources', "if (isUnknownSubresource(info)) return 'unknownSubresource';", ''],
  [
    'reads of unknown subresources',
    'return !READS.has(verb) || (subresource',
    'return !READS.has(verb) && (subresource',
  ],
  ['ephemeral containers', "return 'ephemeralContainers';", "return 'plain';"],
  [
    'streams',
    "if (info.verb === 'watch') return info.subresource === '';",
    "if (info.verb === 'watch') return false;",
  ],
);

const FRONT = [
  ...inFile('src/proxy/front/plain.ts', [
    'HTTP versions',
    "if (request.httpVersion === '1.1' || request.httpVersion === '1.0') void",
    "if (request.httpVersion !== '') void",
  ]),
  ...inFile(
    'src/proxy/front/server.ts',
    [
      'upgrades behind a request',
      'if (connection.busy) return connection.drop(BEHIND_ANOTHER, request);',
      '',
    ],
    ['strict parser', 'insecureHTTPParser: false,', 'insecureHTTPParser: true,'],
  ),
  ...inFile(
    'src/proxy/front/http2.ts',
    [
      'two hosts',
      "if (hosts > 1) return new TailcastError('HEADER_REFUSED', 'there are two Host headers');",
      '',
    ],
    ['authority and host', 'authority.toLowerCase() !== host.toLowerCase()', 'authority === "never"'],
    ['scheme', "if (pseudo.get(':scheme') !== 'https')", "if (pseudo.get(':scheme') === 'never')"],
    ['extended CONNECT', 'enableConnectProtocol: false', 'enableConnectProtocol: true'],
  ),
  ...inFile('src/kube/header-lines.ts', [
    'one line',
    'return more.length === 0 ? value : undefined;',
    'return value;',
  ]),
  ...inFile(
    'src/proxy/session/upgrade-http.ts',
    ['HTTP/1.0', "if (request.httpVersion !== '1.1')", "if (request.httpVersion === '')"],
    ['bodies of upgrades', 'if (hasBody(request.rawHeaders))', 'if (request.method === "")'],
    [
      'other kinds of HTTP',
      'if (tokens.some((token) => CARRIES_HTTP.test(token)))',
      'if (tokens.includes("never"))',
    ],
    ['two protocols', 'if (known.size > 1)', 'if (known.size > 9)'],
    ['methods of protocols', 'if (!methods.includes(request.method))', 'if (request.method === "")'],
    ['spelling of protocols', 'KNOWN.get(token.toLowerCase())', 'KNOWN.get(token)'],
  ),
  ...inFile(
    'src/recording/stream-plan.ts',
    [
      'subprotocols that cannot be recorded',
      "if (offered === undefined || (protocol === 'spdy' && offered.length === 0)) {",
      'if (offered === undefined) {',
    ],
    [
      'WebSocket extensions offered',
      "withoutHeader(withoutHeader(headers, name), 'sec-websocket-extensions')",
      'withoutHeader(headers, name)',
    ],
  ),
  ...inFile(
    'src/proxy/session/upgrade.ts',
    [
      'unknown protocols',
      "if (upgrade.protocol === 'other' && !SPOKEN_BY_APPS.has(admission.requestClass)) {",
      'if (upgrade.value === "never") {',
    ],
    ['sessions recorded', 'if (admission.record) return record(', 'if (admission.id === "") return record('],
    ['events of upgrades', 'const event = admission.event', 'const event = admission.id === ""'],
    ['number of sessions', 'leave = await deps.counts?.enter(callerName(admission.identity));', ''],
    ['places given back', '      leave?.();\n', ''],
    ['rechecks of sessions', '...(watch === undefined ? {} : { watch }),', ''],
    ['shutdown', "if (deps.sessions.closing) throw new TailcastError('SHUTTING_DOWN');", ''],
  ),
  ...inFile(
    'src/proxy/session/tunnel.ts',
    [
      'streams in other protocols',
      "throw new TailcastError('UPGRADE_REFUSED', 'a stream is read over WebSocket only');",
      '',
    ],
    [
      'streams are only read',
      "if (isStream(policyClass) && recording.mode === 'failClosed') {",
      'if (policyClass === undefined) {',
    ],
    [
      'ports are watched',
      "policyClass === 'portForward' ? watchPorts(protocol, rawHeaders, isPortRefused) : undefined;",
      'isPortRefused.length > 9 ? watchPorts(protocol, rawHeaders, isPortRefused) : undefined;',
    ],
  ),
  ...inFile(
    'src/recording/tap-unrecorded.ts',
    ['messages on a stream', 'if (opcode < OPCODE.close && length > 0) {', 'if (opcode < 0) {'],
    ['no word inside a frame', 'return deliveredToBoundary && !closed ?', 'return !closed ?'],
    ['no word behind the end', 'return deliveredToBoundary && !closed ?', 'return deliveredToBoundary ?'],
    ['length of a close frame', 'message.slice(0, read)', 'message'],
  ),
  ...inFile(
    'src/proxy/session/dial.ts',
    [
      'the protocol of a 101',
      'if (response.headers.upgrade?.toLowerCase() !== dial.protocol.toLowerCase()) {',
      'if (response.headers.upgrade === "never") {',
    ],
    [
      'the subprotocol of a 101',
      "if (chosen !== '' && dial.subprotocol?.offered.includes(chosen) === false) {",
      'if (chosen === "never") {',
    ],
  ),
  ...inFile(
    'src/proxy/front/pump.ts',
    ['events before requests', 'admission.event ? await this.#recordEvent(admission) : NO_BODY', 'NO_BODY'],
    ['rechecks of requests', 'this.#revoke(error),', 'void error,'],
    ['requests in flight', "if (load.inFlight > maxInFlight) throw new TailcastError('OVERLOADED');", ''],
  ),
  ...inFile(
    'src/proxy/gate/recheck.ts',
    ['tolerance ends', 'if (monotonicMs() - entry.confirmedAtMs >= toleranceMs) {', 'if (toleranceMs < 0) {'],
    ['the last answer counts', 'entry.confirmedAtMs = askedAtMs;', ''],
    ['what ended is left alone', 'if (entries.delete(entry)) entry.end(error);', 'entry.end(error);'],
    ['one question at a time', 'if (entry.busy || ', 'if ('],
    ['a refusal ends', 'if (!isTemporary(error.code)) return finish(entry, error);', ''],
  ),
  ...inFile(
    'src/proxy/session/session-counts.ts',
    ['per user', 'if (own >= limits.perUser) {', 'if (own > 1e9) {'],
    ['in total', 'if (open.total >= limits.total) {', 'if (open.total > 1e9) {'],
  ),
  ...inFile('src/keyed-counter.ts', ['leaving once', 'if (left) return;', '']),
  ...inFile(
    'src/proxy/session/upgrade-session.ts',
    ['longest time', 'timers.push(setTimeout(() => end(error), maxDurationMs));', 'void error;'],
    ['longest silence', 'if (monotonicMs() - sinceMs < idleMs) return;', 'return;'],
    ['the recorder of an enforced session', 'if (!enforce) return;', 'return;'],
  ),
  ...inFile('src/recording/request-event.ts', [
    'no event, no request',
    "if (recording.mode === 'failClosed') {",
    'if (id === "never") {',
  ]),
];

const TAPS = [
  ...inFile('src/recording/tap-spdy.ts', [
    'answers of a client',
    "throw violation('a SPDY client answered a stream that was not opened');",
    'return;',
  ]),
  ...inFile(
    'src/recording/spdy-server-reader.ts',
    [
      'roles',
      "if (role === undefined) throw violation('a SPDY stream has no known type');",
      'if (role === undefined) return;',
    ],
    ['ids', 'if (id % 2 === 0 || id <= lastId)', 'if (id < 0)'],
    ['one stream per role', 'if (stream.role === role) throw', 'if (id < 0) throw'],
    ['streams of a server', "throw violation('the server opened a SPDY stream of its own');", 'return;'],
    [
      'output where input belongs',
      'if (event.payload.length > 0) throw violation(`output on',
      'if (event.streamId < 0) throw violation(`output on',
    ],
    [
      'stderr',
      "      case 'stderr':\n        session.output(stream.role, event.payload);",
      "        session.output(stream.role, event.payload);\n        break;\n      case 'stderr':",
    ],
  ),
  ...inFile(
    'src/recording/tap-websocket.ts',
    ['reserved bits', 'if (piece.rsv !== 0) throw', 'if (piece.rsv > 9) throw'],
    [
      'fragments of a client',
      'if (!piece.fin || piece.opcode === OPCODE.continuation) throw',
      'if (piece.rsv > 9) throw',
    ],
    [
      'close signals',
      'if (closeSignal.length > 1 || (last && closeSignal.length !== 1)) {',
      'if (closeSignal.length > 1e9) {',
    ],
    ['output where input belongs', 'if (part.length > 0) throw', 'if (part.length > 1e9) throw'],
    [
      'output behind the end',
      "if (closed) throw violation('the server sent data after its close frame');",
      '',
    ],
    [
      'channels',
      "if (!isKnownChannel(channel, this.#protocol)) throw violation('a message on an unknown channel');",
      '',
    ],
    ['empty messages', "if (last) throw violation('an empty message names no channel');", ''],
    ['base64 behind its padding', "if (padded) throw violation('base64 has data after its padding');", ''],
    [
      'types of messages of a server',
      'if ((piece.opcode === OPCODE.text) !== base64) throw',
      'if (piece.rsv > 9) throw',
    ],
  ),
  ...inFile(
    'src/recording/tap-port-forward.ts',
    ['ports are judged', '    judge(port);\n', ''],
    ['zeros in front of a port', '/^\\d+$/.test(port)', '/^\\d{1,5}$/.test(port)'],
    ['several ports on a stream', "values.split('\\0', 1)", '[values]'],
    ['compressed tunnels', 'if (piece.rsv !== 0) throw', 'if (piece.rsv > 9) throw'],
  ),
  ...inFile(
    'src/recording/stream-plan.ts',
    [
      'what can be recorded',
      'if (parsed === undefined || !isRecordable(protocol, chosen)) {',
      'if (parsed === undefined) {',
    ],
    [
      'no base64 over SPDY',
      "(protocol === 'websocket' || (name !== '' && !parsed.base64))",
      'name !== "never"',
    ],
  ),
  ...inFile(
    'src/recording/session.ts',
    [
      'nothing unrecorded after a loss',
      "if (this.#state !== 'failed' || !this.#options.enforce) return;",
      "if (this.#state !== 'closed') return;",
    ],
    [
      'output held back for its size waits where writers wait',
      "return hasNewOutput && this.#sink.policy !== 'bestEffort' ?",
      'return hasNewOutput && this.#batchBytes < 0 ?',
    ],
    [
      'output held back waits for what somebody else flushed',
      "if (this.#state === 'open') await this.#sink.whenShown();",
      "if (this.#state === 'closed') await this.#sink.whenShown();",
    ],
    [
      'a full sink makes its writer wait',
      'return this.#sink.write(events)?.catch(',
      'void this.#sink.write(events)?.catch(',
    ],
    [
      'a lost recorder is an error',
      '    if (this.#options.enforce) {\n      throw error instanceof',
      '    if (lostBytes < 0) {\n      throw error instanceof',
    ],
  ),
  ...inFile('src/recording/recorder-upload.ts', [
    'without a window every writer waits',
    "bytes: policy === 'window0' ? 0 :",
    'bytes: policy.length === 0 ? 0 :',
  ]),
  ...inFile(
    'src/recording/late-deliveries.ts',
    [
      'all of an end is acknowledged',
      'if (waiting.acknowledged < rest.bytes.length) throw',
      'if (waiting.acknowledged < 0) throw',
    ],
    ['bytes that wait', 'if (this.#heldBytes + heldBytes > maxBytes)', 'if (heldBytes > 1e12)'],
    ['sessions that wait', 'if (this.#sessions >= maxSessions)', 'if (this.#sessions > 1e9)'],
    ['ends that cannot be continued', 'if (!resumable) return', 'if (this.#sessions < 0) return'],
  ),
  ...inFile(
    'src/recording/policy.ts',
    [
      'enforcement of one is of all',
      'rules.some((rule) => rule.enforceRecorder)',
      'rules.every((rule) => rule.enforceRecorder)',
    ],
    [
      'enforcement without a recorder',
      "if (!enforce && recorders.length === 0 && recorderTags.length === 0) return { mode: 'off' };",
      "if (recorders.length === 0 && recorderTags.length === 0) return { mode: 'off' };",
    ],
    [
      'events of one are of all',
      'rules.some((rule) => rule.enableEvents)',
      'rules.every((rule) => rule.enableEvents)',
    ],
  ),
];

export const MUTATIONS: readonly Mutation[] = [
  ...GATE,
  ...PAGES,
  ...POLICY,
  ...HEADERS,
  ...IMPERSONATION,
  ...TARGETS,
  ...CLASSES,
  ...REQUESTS,
  ...FRONT,
  ...TAPS,
  ...ACCESS,
  ...CLUSTERS,
  ...NOTIFICATIONS,
  ...PORTAL,
];

/** Suites that run first for a file, because they are the most likely to fail. All suites run if necessary. */
export const FIRST_SUITES: Readonly<Record<string, readonly string[]>> = {
  ...CLUSTER_SUITES,
  ...NOTIFICATION_SUITES,
  ...PORTAL_SUITES,
  'src/proxy/gate/gate.ts': [
    'test/proxy/gate/gate.test.ts',
    'test/proxy/gate/cluster-gate.test.ts',
    'test/proxy/gate/recheck.test.ts',
    'test/attack/roads.test.ts',
    'test/attack/workloads.test.ts',
    'test/attack/life.test.ts',
    'test/attack/portal.test.ts',
  ],
  'src/proxy/gate/browser-guard.ts': [
    'test/proxy/gate/gate.test.ts',
    'test/attack/portal.test.ts',
    'test/attack/headers.test.ts',
    'test/attack/framing.test.ts',
  ],
  'src/proxy/gate/policy.ts': ['test/proxy/gate/policy.test.ts'],
  'src/tsrecorder/serving/viewer-access.ts': ['test/tsrecorder/trusted-gateway.test.ts'],
  'src/tsrecorder/serving/viewing.ts': ['test/tsrecorder/trusted-gateway.test.ts'],
  'src/wire/recorder-api/named-viewer.ts': ['test/wire/recorder-api/named-viewer.test.ts'],
  'src/kube/headers.ts': [
    'test/kube/headers.test.ts',
    'test/impersonation/apply.test.ts',
    'test/attack/headers.test.ts',
  ],
  'src/impersonation/apply.ts': ['test/impersonation/apply.test.ts'],
  'src/impersonation/target.ts': ['test/impersonation/target.test.ts'],
  'src/kube/canonical-target.ts': ['test/kube/canonical-target.test.ts', 'test/attack/targets.test.ts'],
  'src/kube/interactive.ts': ['test/kube/interactive.test.ts'],
  'src/kube/request-info.ts': ['test/kube/request-info.test.ts'],
  'src/recording/redact-body.ts': ['test/recording/request-event.test.ts', 'test/attack/workloads.test.ts'],
  'src/recording/kept-fields.ts': ['test/recording/request-event.test.ts', 'test/attack/workloads.test.ts'],
  'src/proxy/front/plain.ts': ['test/attack/framing.test.ts'],
  'src/proxy/front/server.ts': ['test/attack/framing.test.ts', 'test/proxy/front/server.test.ts'],
  'src/recording/stream-plan.ts': [
    'test/recording/stream-plan.test.ts',
    'test/attack/roads.test.ts',
    'test/proxy/session/upgrade.test.ts',
  ],
  'src/proxy/front/http2.ts': ['test/proxy/front/http2.test.ts', 'test/attack/framing.test.ts'],
  'src/kube/header-lines.ts': ['test/attack/portal.test.ts', 'test/attack/roads.test.ts'],
  'src/proxy/session/upgrade-http.ts': [
    'test/proxy/session/upgrade.test.ts',
    'test/attack/roads.test.ts',
    'test/attack/portal.test.ts',
  ],
  ...ACCESS_SUITES,
  'src/proxy/session/upgrade.ts': [
    'test/proxy/session/moderated.test.ts',
    'test/proxy/session/upgrade.test.ts',
    'test/proxy/session-life.test.ts',
    'test/attack/roads.test.ts',
  ],
  'src/proxy/session/upgrade-recorder.ts': ['test/proxy/session/upgrade.test.ts'],
  'src/proxy/session/tunnel.ts': [
    'test/proxy/session/tunnel.test.ts',
    'test/attack/roads.test.ts',
    'test/proxy/session/upgrade.test.ts',
  ],
  'src/recording/tap-unrecorded.ts': ['test/proxy/session/tunnel.test.ts'],
  'src/proxy/session/dial.ts': ['test/proxy/session/dial.test.ts'],
  'src/proxy/front/pump.ts': [
    'test/proxy/front/plain.test.ts',
    'test/proxy/relay-plain.test.ts',
    'test/attack/clusters.test.ts',
    'test/attack/life.test.ts',
  ],
  'src/proxy/gate/recheck.ts': ['test/proxy/gate/recheck.test.ts'],
  'src/proxy/session/session-counts.ts': ['test/proxy/session/session-counts.test.ts'],
  'src/keyed-counter.ts': ['test/keyed-counter.test.ts', 'test/proxy/session/session-counts.test.ts'],
  'src/proxy/session/upgrade-session.ts': [
    'test/proxy/session-life.test.ts',
    'test/proxy/session/upgrade.test.ts',
  ],
  'src/recording/request-event.ts': ['test/recording/request-event.test.ts', 'test/attack/workloads.test.ts'],
  'src/recording/tap-spdy.ts': ['test/recording/tap-spdy.test.ts'],
  'src/recording/spdy-server-reader.ts': ['test/recording/tap-spdy.test.ts'],
  'src/recording/tap-port-forward.ts': ['test/recording/tap-port-forward.test.ts'],
  'src/recording/tap-websocket.ts': ['test/recording/tap-websocket.test.ts'],
  'src/recording/session.ts': ['test/recording/session.test.ts'],
  'src/recording/recorder-upload.ts': ['test/recording/recorder-client.test.ts'],
  'src/recording/late-deliveries.ts': ['test/recording/late-deliveries.test.ts'],
  'src/recording/policy.ts': ['test/recording/policy.test.ts'],
};

export const ALL_SUITES: readonly string[] = [
  'test/access',
  'test/attack',
  'test/compose/clusters.test.ts',
  'test/impersonation',
  'test/kube',
  'test/portal',
  'test/proxy',
  'test/recording',
  'test/tailnet/capabilities.test.ts',
  'test/tailnet/local-api.test.ts',
  'test/tailnet/whois.test.ts',
  'test/tsrecorder/search/alerts',
];
