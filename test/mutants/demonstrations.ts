/**
 * The seventeen attacks that an independent review demonstrated, each with the rule and the tests that prevent it. The
 * second list contains lines that the review removed without causing any test to fail. A check consists of a line, its
 * replacement, and the test that must fail after the replacement (`run.ts`).
 */
export interface Demonstration {
  readonly number: number;
  /** The demonstrated attack. */
  readonly hole: string;
  /** General rule that prevents this kind of attack. */
  readonly rule: string;
  readonly checks: readonly Check[];
  /**
   * More tests that prevent the attack, as file and part of the test's name. These tests fail only if several lines
   * change, or need real peers.
   */
  readonly also?: readonly (readonly [file: string, test: string])[];
}

export interface Check {
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  readonly testFile: string;
  /** Part of a test's name; ` > ` matches any text. If empty, any test of the file may fail. */
  readonly test: string;
}

export const DEMONSTRATIONS: readonly Demonstration[] = [
  {
    number: 1,
    hole: 'one pod crashes the gateway over HTTP/2',
    rule:
      'The gateway makes headers valid for HTTP/2 before Node checks them, and guards every callback of a ' +
      'request. An uncaught exception drains the process.',
    checks: [
      {
        file: 'src/http2-fields.ts',
        find: 'if (SINGLE.has(name)) {',
        replace: "if (name === 'never') {",
        testFile: 'test/attack/hostile-upstream.test.ts',
        test: 'h2 request with > nosniff twice, body later',
      },
      {
        file: 'src/observe/fatal-errors.ts',
        find: "  process.on('uncaughtException', onException);\n",
        replace: '',
        testFile: 'test/e2e/fatal-errors.test.ts',
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
    hole: 'a page of a pod acts as its viewer',
    rule: 'The gateway rejects pages of programs for browsers, or sandboxes them (ADR 11).',
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
    rule: 'The signed log contains bytes before they are acknowledged. Missing acknowledged bytes are `lost`.',
    checks: [
      {
        file: 'src/tsrecorder/evidence/lost-sessions.ts',
        find: 'if (begun.header !== undefined) lose(recording, 0, SPOOL_LOST);\n    else evidence',
        replace: 'evidence',
        testFile: 'test/tsrecorder/lost-spool.test.ts',
        test: 'reports a session as lost if its files were removed from the spool',
      },
      {
        file: 'src/tsrecorder/evidence/lost-sessions.ts',
        find: 'return durable < begun.durable ? lose(recording, durable, SPOOL_SHORT) : undefined;',
        replace: 'return undefined;',
        testFile: 'test/tsrecorder/lost-spool.test.ts',
        test: 'reports how much of a truncated session is missing',
      },
      {
        file: 'src/tsrecorder/evidence/lost-sessions.ts',
        find: 'if (begun.header !== sha256(header)) return lose(recording, 0, SPOOL_OTHER);',
        replace: '',
        testFile: 'test/tsrecorder/lost-spool.test.ts',
        test: 'does not mistake a session for another one',
      },
    ],
    also: [['test/faults/tampered-spools.ts', '']],
  },
  {
    number: 4,
    hole: 'restricted viewers read hidden metadata',
    rule: 'The recorder applies viewer rules before matching, counting and paging. Cursors are sealed.',
    checks: [
      {
        file: 'src/tsrecorder/serving/api-lists.ts',
        find: 'catalog.list(query, access.scope(viewer), ownerOf(viewer))',
        replace: "catalog.list(query, 'everything', ownerOf(viewer))",
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
    hole: 'an unrecorded shell through `proxy` of another API',
    rule:
      'Under enforcement the gateway rejects `proxy` requests with unknown content and log queries of nodes. ' +
      'Unknown subresources are events.',
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
    hole: 'a foreign log counts as evidence about recordings',
    rule: 'Verification uses only logs of named keys. Without a key it judges nothing.',
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
        find: "return isOurs ? 'verified' : 'unverified';",
        replace: "return 'verified';",
        testFile: 'test/cli/verify.test.ts',
        test: '',
      },
    ],
  },
  {
    number: 7,
    hole: 'request smuggling from HTTP/2 to HTTP/1.1',
    rule:
      'The gateway compares header names only with header names. A length is digits, and the writer ' +
      'checks it again.',
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
    rule: 'Events contain an allow-list of fields per kind, and no data for programs.',
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
    rule: 'Requests, connections and pending bytes are limited per user. More requests get 429.',
    checks: [
      {
        file: 'src/proxy/front/user-limits.ts',
        find: 'if (requests.usedBy(user) >= limits.requests)',
        replace: "if (user === '')",
        testFile: 'test/attack/one-user.test.ts',
        test: 'more watches than one may have',
      },
      {
        file: 'src/proxy/front/user-limits.ts',
        find: 'else if (addresses.usedBy(peer.address) >= limits.connections) return false;',
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
    rule: 'Uploaders and viewers have separate queues for tailscaled.',
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
    hole: 'other spellings of 127.0.0.1 for a listener with PROXY headers; `/-/x` without identity',
    rule: 'Addresses are compared as addresses. Authentication comes first.',
    checks: [
      {
        file: 'src/tailnet/proxied-listener.ts',
        find: 'const address = normaliseAddress(host);',
        replace: 'const address = host;',
        testFile: 'test/compose/proxy-listener.test.ts',
        test: 'is refused on',
      },
      {
        file: 'src/proxy/gate/gate.ts',
        find: `      const identity = await deps.identities.whois(request.peer, signal, deps.cluster?.service);
      const standing = standingOf(identity);
      // this check follows authentication, so that unknown clients cannot probe these paths
      refuseReserved(target, deps.refusedSegments);`,
        replace: `      refuseReserved(target, deps.refusedSegments);
      const identity = await deps.identities.whois(request.peer, signal, deps.cluster?.service);
      const standing = standingOf(identity);`,
        testFile: 'test/proxy/front/server.test.ts',
        test: '',
      },
    ],
  },
  {
    number: 12,
    hole: '`coverage` accepts files that are no audit log',
    rule: '`coverage` fails for incomplete audit events and for logs without events.',
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
        find: "if (events === 0) throw new Error('it contains no event');",
        replace: '',
        testFile: 'test/cli/coverage.test.ts',
        test: 'is empty > is no proof',
      },
    ],
  },
  {
    number: 13,
    hole: 'SIGTERM does not reach the role',
    rule: 'The wrapper forwards signals, and the role exits if the wrapper exits.',
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
    hole: '`coverage` is wrong in `noauth` mode; forwarded headers are unclear',
    rule:
      'A recorded session gets our audit id unless the client chose one. A test compares headers with a ' +
      'direct connection.',
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
        find: 'if (auditId !== undefined && auditId !== id)',
        replace: 'if (id.length < 0)',
        testFile: 'test/cli/coverage.test.ts',
        test: 'covers nothing by an id that the client had chosen',
      },
      {
        file: 'src/recording/stream-plan.ts',
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
    rule: 'The store has the log entry of the start before the first acknowledgement.',
    checks: [
      {
        file: 'src/tsrecorder/evidence/session-evidence.ts',
        find: '      await log.announce(ANNOUNCE_LIMIT_MS);\n',
        replace: '',
        testFile: 'test/tsrecorder/lost-spool.test.ts',
        test: 'the log names the sessions that had started',
      },
    ],
  },
  {
    number: 16,
    hole: 'after failover to another store both lists report `interrupted`',
    rule: 'Parts contain their session and their neighbours. `ls`, `play` and `verify` join stores (ADR 5).',
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
    hole: 'an unproven end looks like success',
    rule:
      'The gateway holds an exit status back until its proof (ADR 13). If the gateway is killed, a SPDY ' +
      'client still sees an end of file, which `kubectl` treats as success.',
    checks: [
      {
        file: 'src/recording/tap-spdy.ts',
        find: 'if (reader.incompleteReason() === undefined) conclusion.free();',
        replace: 'conclusion.free();',
        testFile: 'test/recording/tap-spdy.test.ts',
        test: '',
      },
      {
        file: 'src/proxy/session/upgrade-session.ts',
        find: 'const reason = incompleteReasonOf(live, backpressured);',
        replace: 'const reason = backpressured === undefined ? undefined : undefined;',
        testFile: 'test/proxy/session-life.test.ts',
        test: 'is no success without a proof of its end',
      },
    ],
  },
];

/** A line that no test covered, its purpose, and the test that covers it now. */
export interface NoticedLine extends Check {
  readonly does: string;
}

export const NOTICED_LINES: readonly NoticedLine[] = [
  {
    does: 'only devices in `uploaders` can upload',
    file: 'src/compose/recorder-identities.ts',
    find: 'if (config.uploaders.length > 0 && ',
    replace: 'if (config.uploaders.length > 1e9 && ',
    testFile: 'test/compose/recorder-whois.test.ts',
    test: 'let nobody upload who is not among the uploaders',
  },
  {
    does: 'a gateway with PROXY headers needs a loopback address of its own',
    file: 'src/compose/gateway.ts',
    find: "  if (config.proxyProtocol === 'require') assertPrivateProxyListener(config.listen.host);\n",
    replace: '',
    testFile: 'test/compose/proxy-listener.test.ts',
    test: 'is refused when a gateway starts',
  },
  {
    does: 'a request is sent only with a valid integer length',
    file: 'src/proxy/upstream/upstream.ts',
    find: "if (framing.kind === 'length' && !(Number.isSafeInteger(framing.bytes) && framing.bytes >= 0))",
    replace: "if (framing.kind === 'length' && framing.bytes === -1)",
    testFile: 'test/proxy/upstream/upstream.test.ts',
    test: 'never leaves with > a length',
  },
  {
    does: 'a live view causes an access event',
    file: 'src/tsrecorder/serving/live-socket.ts',
    find: "    await access.saw(viewer, 'play', request.url ?? '', entry);\n",
    replace: '',
    testFile: 'test/tsrecorder/trusted-gateway.test.ts',
    test: 'is in the event of a live view',
  },
  {
    does: 'a removal in the log of another recorder is `removal-untrusted`',
    file: 'src/tsrecorder/evidence/verify-store.ts',
    find: "      findings.push(fault('removal-untrusted', message, where));\n    } else removed += 1;",
    replace: '    } else removed += 1;',
    testFile: 'test/evidence/strangers.test.ts',
    test: 'removes none either for somebody who named no key',
  },
  {
    does: 'the store has the log entry before a recording is removed',
    file: 'src/tsrecorder/evidence/session-evidence.ts',
    find: "for (const removal of removals) log.append({ kind: 'removed', ...removal });\n      await publish();",
    replace:
      "for (const removal of removals) log.append({ kind: 'removed', ...removal });\n      await log.sync();",
    testFile: 'test/tsrecorder/evidence/session-evidence.test.ts',
    test: 'before it permits the removal',
  },
  {
    does: 'a sidecar of another recording is a fault',
    file: 'src/tsrecorder/evidence/verify-recording.ts',
    find: 'if (recorded !== recordingKey(this.#key)) {',
    replace: "if (recorded === '') {",
    testFile: 'test/evidence/strangers.test.ts',
    test: 'names its recording',
  },
];
