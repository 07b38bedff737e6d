/**
 * The seventeen holes that an independent review demonstrated, what closes each kind, and the test of each; and the lines that it broke
 * by hand and that no test noticed. A check is one line, how to take it out, and the test that must fail then; `demonstrations-run.ts` does that.
 */
export interface Demonstration {
  readonly number: number;
  readonly hole: string;
  /** What closes the kind. */
  readonly rule: string;
  readonly checks: readonly Check[];
  /** Tests that no change of one line shows, or that need real peers: file and words of a name. */
  readonly also?: readonly (readonly [file: string, test: string])[];
}

export interface Check {
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  readonly testFile: string;
  /** Part of the name of a test; ` > ` stands for anything between. Empty: any test of the file. */
  readonly test: string;
}

export const DEMONSTRATIONS: readonly Demonstration[] = [
  {
    number: 1,
    hole: 'one pod crashes the gateway over HTTP/2',
    rule: 'fields are made fit for HTTP/2 before Node sees them; every callback of a request is guarded; what still reaches the top drains the process',
    checks: [
      {
        file: 'src/http2-fields.ts',
        find: 'if (SINGLE.has(name)) {',
        replace: "if (name === 'never') {",
        testFile: 'test/attack/hostile-upstream.test.ts',
        test: 'h2 request with > nosniff twice, body later',
      },
      {
        file: 'src/observe/last-resort.ts',
        find: "  process.on('uncaughtException', onException);\n",
        replace: '',
        testFile: 'test/e2e/last-resort.test.ts',
        test: 'drains it: sessions go on',
      },
    ],
    also: [
      ['test/attack/hostile-upstream.test.ts', 'connection trailers'],
      ['test/proxy/front/http2.test.ts', ''],
    ],
  },
  {
    number: 2,
    hole: 'a page of a pod acts as whoever views it',
    rule: 'a browser is refused what programs serve, or gets it without an origin and without a right to act (ADR 11)',
    checks: [
      {
        file: 'src/proxy/gate/gate.ts',
        find: 'refusePages({ rawHeaders, shown, requestClass }, policy.programPages);',
        replace: '',
        testFile: 'test/attack/browsers.test.ts',
        test: 'G1 is told how else to get',
      },
      {
        file: 'src/proxy/gate/browser-pages.ts',
        find: 'return [...kept, ...POLICY];',
        replace: 'return kept;',
        testFile: 'test/attack/browsers.test.ts',
        test: 'G3 is shown',
      },
      {
        file: 'src/proxy/front/http2.ts',
        find: 'http2Fields(shown ? fieldsForBrowser(clean) : clean)',
        replace: 'http2Fields(clean)',
        testFile: 'test/attack/browsers.test.ts',
        test: '(h2) > G3 is shown',
      },
    ],
    also: [['test/real/suites/browser-pages.test.ts', 'reaches nothing']],
  },
  {
    number: 3,
    hole: 'the recorder signs away acknowledged bytes',
    rule: 'what is acknowledged is in the signed log first; what is gone after that is `lost`',
    checks: [
      {
        file: 'src/tsrecorder/evidence/lost-sessions.ts',
        find: 'if (begun.header !== undefined) lose(recording, 0, SPOOL_GONE);\n    else evidence',
        replace: 'evidence',
        testFile: 'test/tsrecorder/lost-spool.test.ts',
        test: 'says that a session is lost whose spool was removed',
      },
      {
        file: 'src/tsrecorder/evidence/lost-sessions.ts',
        find: 'return durable < begun.durable ? lose(recording, durable, SPOOL_SHORT) : undefined;',
        replace: 'return undefined;',
        testFile: 'test/tsrecorder/lost-spool.test.ts',
        test: 'says how much is missing of one that was cut',
      },
      {
        file: 'src/tsrecorder/evidence/lost-sessions.ts',
        find: 'if (begun.header !== sha256(header)) return lose(recording, 0, SPOOL_OTHER);',
        replace: '',
        testFile: 'test/tsrecorder/lost-spool.test.ts',
        test: 'does not take one session for another',
      },
    ],
    also: [['test/faults/tampered-spools.ts', '']],
  },
  {
    number: 4,
    hole: 'restricted viewers read hidden metadata',
    rule: 'who may see is decided before matching, counting and paging; cursors are sealed',
    checks: [
      {
        file: 'src/tsrecorder/serving/api.ts',
        find: 'catalog.list(query, access.scope(viewer))',
        replace: "catalog.list(query, 'everything')",
        testFile: 'test/attack/viewers.test.ts',
        test: 'no command is recovered letter by letter',
      },
      {
        file: 'src/tsrecorder/serving/cursors.ts',
        find: 'createCipheriv(ALGORITHM, key, nonce).setAAD(Buffer.from(list))',
        replace: 'createCipheriv(ALGORITHM, key, nonce).setAAD(Buffer.from(list.slice(0, 0)))',
        testFile: 'test/attack/viewers.test.ts',
        test: 'pages of 1 > hold what may be seen',
      },
    ],
  },
  {
    number: 5,
    hole: 'an unrecorded road through `proxy` of another API',
    rule: 'a `proxy` that nobody can read is refused under enforcement, a query for logs of a node too; unknown subresources are events',
    checks: [
      {
        file: 'src/kube/interactive.ts',
        find: "if (info.parts.includes('proxy', 2)) return 'otherProxy';",
        replace: '',
        testFile: 'test/attack/roads.test.ts',
        test: 'E9 lead nowhere through a proxy',
      },
      {
        file: 'src/kube/interactive.ts',
        find: "if (isUnknownSubresource(info)) return 'unknownSubresource';",
        replace: '',
        testFile: 'test/attack/roads.test.ts',
        test: 'E9 are told to a recorder first',
      },
    ],
    also: [['test/real/suites/differential-api-server.test.ts', '']],
  },
  {
    number: 6,
    hole: 'a stranger’s log speaks about recordings',
    rule: 'only logs under a key that was named speak; without one nothing is judged',
    checks: [
      {
        file: 'src/tsrecorder/evidence/verify-store.ts',
        find: '} else if (!keys.trusted && !removals.some((removal) => sharesKey(index.logs, removal.log, log))) {',
        replace: "} else if (removals.some((removal) => removal.log === '')) {",
        testFile: 'test/evidence/strangers.test.ts',
        test: 'removes none either for somebody who named no key',
      },
      {
        file: 'src/tsrecorder/evidence/verify-store.ts',
        find: "return isOurs ? 'sound' : 'unjudged';",
        replace: "return 'sound';",
        testFile: 'test/cli/verify.test.ts',
        test: '',
      },
    ],
  },
  {
    number: 7,
    hole: 'smuggling from HTTP/2 to HTTP/1.1',
    rule: 'names are looked for among names, a length is digits, and is looked at again where the head is written',
    checks: [
      {
        file: 'src/proxy/front/http2.ts',
        find: '!/^\\d+$/.test(length) || ',
        replace: '',
        testFile: 'test/proxy/front/http2.test.ts',
        test: 'is none when the length is',
      },
      {
        file: 'src/proxy/upstream/upstream.ts',
        find: "if (framing.kind === 'length' && !(Number.isSafeInteger(framing.bytes) && framing.bytes >= 0))",
        replace: "if (framing.kind === 'length' && framing.bytes === -1)",
        testFile: 'test/proxy/upstream/upstream.test.ts',
        test: 'never leaves with > a length',
      },
    ],
  },
  {
    number: 8,
    hole: 'passwords in events',
    rule: 'of a body is kept what is listed, kind by kind, and nothing of what is for a program',
    checks: [
      {
        file: 'src/recording/kept-fields.ts',
        find: 'if (!isResourceRequest || parts.length > 3 || !isOwn(subresource)) return undefined;',
        replace: 'if (!isResourceRequest) return undefined;',
        testFile: 'test/attack/events.test.ts',
        test: 'holds no password',
      },
      {
        file: 'src/recording/redact-body.ts',
        find: 'if (shape === undefined) return REDACTED;',
        replace: 'if (shape === undefined) return json;',
        testFile: 'test/attack/events.test.ts',
        test: 'holds no password',
      },
    ],
  },
  {
    number: 9,
    hole: 'one user exhausts the gateway',
    rule: 'requests, connections and waiting bytes of one user are bounded by the memory there is; 429 for that user',
    checks: [
      {
        file: 'src/proxy/front/user-limits.ts',
        find: 'if (requests.takenBy(user) >= limits.requests)',
        replace: "if (user === '')",
        testFile: 'test/attack/one-user.test.ts',
        test: 'more watches than one may have',
      },
      {
        file: 'src/proxy/front/user-limits.ts',
        find: 'else if (addresses.takenBy(peer.address) >= limits.connections) return false;',
        replace: '',
        testFile: 'test/attack/one-user.test.ts',
        test: 'more connections than one may have',
      },
      {
        file: 'src/proxy/front/user-limits.ts',
        find: 'if ((waiting.get(user) ?? 0) > limits.bytes)',
        replace: "if (user === '')",
        testFile: 'test/attack/one-user.test.ts',
        test: 'answers that are not read',
      },
    ],
  },
  {
    number: 10,
    hole: 'viewers starve uploaders',
    rule: 'each waits for tailscaled in a line of its own',
    checks: [
      {
        file: 'src/compose/recorder-identities.ts',
        find: 'const identity = await uploaders.whois(',
        replace: 'const identity = await viewers.whois(',
        testFile: 'test/compose/recorder-whois.test.ts',
        test: 'answer an uploader while any number of viewers waits',
      },
    ],
  },
  {
    number: 11,
    hole: 'spellings of 127.0.0.1 for a listener that believes PROXY headers; `/-/x` before any identity',
    rule: 'addresses are compared as addresses; who is calling is asked first',
    checks: [
      {
        file: 'src/compose/tailnet.ts',
        find: 'const address = normaliseAddress(host);',
        replace: 'const address = host;',
        testFile: 'test/compose/proxy-listener.test.ts',
        test: 'is refused on',
      },
      {
        file: 'src/proxy/gate/gate.ts',
        find: `      const identity = await deps.identities.whois(request.peer, signal);
      const { impersonation, recording } = standingOf(identity);
      // what is here and what is not is for nobody but those who may be here
      if (target.segments[0] === OWN_SEGMENT) throw new TailcastError('NOT_FOUND');`,
        replace: `      if (target.segments[0] === OWN_SEGMENT) throw new TailcastError('NOT_FOUND');
      const identity = await deps.identities.whois(request.peer, signal);
      const { impersonation, recording } = standingOf(identity);`,
        testFile: 'test/proxy/front/server.test.ts',
        test: '',
      },
    ],
  },
  {
    number: 12,
    hole: '`coverage` passes on anything',
    rule: 'a line that is no whole audit event, or a log without one, ends without an answer',
    checks: [
      {
        file: 'src/cli/coverage.ts',
        find: 'if (!isAuditEvent(line)) throw',
        replace: 'if (line.length < 0) throw',
        testFile: 'test/cli/coverage.test.ts',
        test: 'is none > is no proof',
      },
      {
        file: 'src/cli/coverage.ts',
        find: "if (events === 0) throw new Error('there is no event in it');",
        replace: '',
        testFile: 'test/cli/coverage.test.ts',
        test: 'is empty > is no proof',
      },
    ],
  },
  {
    number: 13,
    hole: 'SIGTERM does not reach the role',
    rule: 'a wrapper passes signals on, and the role sees when the wrapper is gone',
    checks: [
      {
        file: 'scripts/tailcast.mjs',
        find: 'process.on(signal, () => child.kill(signal));',
        replace: 'process.on(signal, () => {});',
        testFile: 'test/e2e/signals.test.ts',
        test: 'too old > ends the role in good order at SIGTERM',
      },
    ],
  },
  {
    number: 14,
    hole: '`coverage` does not fit noauth; which header fields pass',
    rule: 'a recorded session gets our audit id unless its client had chosen one; all else is compared with a direct connection',
    checks: [
      {
        file: 'src/proxy/gate/gate.ts',
        find: 'return record ? nameForAuditLog(headers, id) : { headers, auditId: undefined };',
        replace: 'return { headers, auditId: record ? undefined : undefined };',
        testFile: 'test/attack/noauth-headers.test.ts',
        test: 'with the audit id of the recording',
      },
      {
        file: 'src/impersonation/apply.ts',
        find: "if (headers[index]?.toLowerCase() === 'audit-id') return { headers, auditId: undefined };",
        replace: '',
        testFile: 'test/attack/noauth-headers.test.ts',
        test: 'and the recording claims none',
      },
      {
        file: 'src/cli/coverage.ts',
        find: "if (id !== '' && (auditId === undefined || auditId === id))",
        replace: "if (id !== '')",
        testFile: 'test/cli/coverage.test.ts',
        test: 'covers nothing by an id that the client had chosen',
      },
      {
        file: 'src/proxy/session/upgrade.ts',
        find: 'const credentials = headerLines(headers, name).flatMap(bearerSubprotocols);',
        replace: 'const credentials: string[] = [];',
        testFile: 'test/attack/noauth-headers.test.ts',
        test: 'keeps a bearer token among the protocols',
      },
    ],
    also: [['test/real/suites/coverage.test.ts', 'through a gateway in noauth mode']],
  },
  {
    number: 15,
    hole: 'a session that had just begun leaves no trace',
    rule: 'its begin is in the log in the store before its first acknowledgement',
    checks: [
      {
        file: 'src/tsrecorder/evidence/session-evidence.ts',
        find: '      await log.announce(ANNOUNCE_LIMIT_MS);\n',
        replace: '',
        testFile: 'test/tsrecorder/lost-spool.test.ts',
        test: 'the log says what had begun',
      },
    ],
  },
  {
    number: 16,
    hole: 'after failover to another store both lists say `interrupted`',
    rule: 'parts know their session and their neighbours; `ls`, `play` and `verify` join stores (ADR 5)',
    checks: [
      {
        file: 'src/recording/recorder-client.ts',
        find: 'if (before === undefined && after.length === 0) return intent;',
        replace: 'if (recorders.length > 0) return intent;',
        testFile: 'test/e2e/separate-stores.test.ts',
        test: 'each list says where the rest is',
      },
      {
        file: 'src/tsrecorder/evidence/verify-sessions.ts',
        find: 'if (from > reached) {',
        replace: 'if (from < 0) {',
        testFile: 'test/cli/separate-stores.test.ts',
        test: 'a fault where its beginning is in none',
      },
    ],
  },
  {
    number: 17,
    hole: 'an end without a proof looks like success',
    rule: 'a status is kept back until what must follow it has come (ADR 13). A client over SPDY whose gateway is killed still sees an end of file, which `kubectl` takes for success: nobody is left to say otherwise',
    checks: [
      {
        file: 'src/recording/tap-spdy.ts',
        find: 'if (reader.unproved() === undefined) conclusion.free();',
        replace: 'conclusion.free();',
        testFile: 'test/recording/tap-spdy.test.ts',
        test: '',
      },
      {
        file: 'src/proxy/session/upgrade-session.ts',
        find: 'const doubt = taps.unproved(pressed);',
        replace: 'const doubt = pressed === undefined ? undefined : undefined;',
        testFile: 'test/proxy/session-life.test.ts',
        test: 'is no success without a proof of its end',
      },
    ],
  },
];

/** What a line does that was broken once and no test noticed, and the test that does now. */
export interface NoticedLine extends Check {
  readonly does: string;
}

export const NOTICED_LINES: readonly NoticedLine[] = [
  {
    does: 'only nodes among `uploaders` upload',
    file: 'src/compose/recorder-identities.ts',
    find: 'if (config.uploaders.length > 0 && ',
    replace: 'if (config.uploaders.length > 1e9 && ',
    testFile: 'test/compose/recorder-whois.test.ts',
    test: 'let nobody upload who is not among the uploaders',
  },
  {
    does: 'a gateway that believes PROXY headers starts on a loopback address of its own alone',
    file: 'src/compose/gateway.ts',
    find: "  if (config.proxyProtocol === 'require') assertPrivateProxyListener(config.listen.host);\n",
    replace: '',
    testFile: 'test/compose/proxy-listener.test.ts',
    test: 'is refused when a gateway starts',
  },
  {
    does: 'a request leaves with a length that is a whole number, or not at all',
    file: 'src/proxy/upstream/upstream.ts',
    find: "if (framing.kind === 'length' && !(Number.isSafeInteger(framing.bytes) && framing.bytes >= 0))",
    replace: "if (framing.kind === 'length' && framing.bytes === -1)",
    testFile: 'test/proxy/upstream/upstream.test.ts',
    test: 'never leaves with > a length',
  },
  {
    does: 'a live view leaves an event',
    file: 'src/tsrecorder/serving/live-socket.ts',
    find: "    await access.saw(viewer, 'play', request.url ?? '', entry);\n",
    replace: '',
    testFile: 'test/tsrecorder/trusted-gateway.test.ts',
    test: 'is in the event of a live view',
  },
  {
    does: 'a removal that the log of another recorder tells is `removal-untrusted`',
    file: 'src/tsrecorder/evidence/verify-store.ts',
    find: "      findings.push(fault('removal-untrusted', message, where));\n    } else removed += 1;",
    replace: '    } else removed += 1;',
    testFile: 'test/evidence/strangers.test.ts',
    test: 'removes none either for somebody who named no key',
  },
  {
    does: 'the log in the store says what is removed before it is removed',
    file: 'src/tsrecorder/evidence/session-evidence.ts',
    find: "for (const removal of removals) log.append({ kind: 'removed', ...removal });\n      await publish();",
    replace:
      "for (const removal of removals) log.append({ kind: 'removed', ...removal });\n      await log.sync();",
    testFile: 'test/tsrecorder/evidence/session-evidence.test.ts',
    test: 'before it says so to whoever removes them',
  },
  {
    does: 'a sidecar that names another recording is a fault',
    file: 'src/tsrecorder/evidence/verify-recording.ts',
    find: 'if (recorded !== recordingKey(this.#key)) {',
    replace: "if (recorded === '') {",
    testFile: 'test/evidence/strangers.test.ts',
    test: 'names its recording',
  },
];
