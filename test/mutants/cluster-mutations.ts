/** The checks that keep the clusters of one gateway apart, and their removals. */
import { inFile, type Mutation } from './mutation.ts';

const CHOICE = [
  ...inFile(
    'src/proxy/gate/cluster.ts',
    [
      'clusters: SNI and Host agree',
      'if (serverName !== undefined && isIP(hostName) === 0 && bySni !== named) mismatch();',
      '',
    ],
    ['clusters: all names agree', 'if (others.some((entry) => entry !== one)) mismatch();', ''],
    ['clusters: path and host agree', 'if (own !== undefined && own.name !== named) mismatch();', ''],
    ['clusters: the listener decides', '[byName.get(listener), byAddress', '[byAddress'],
    ['clusters: the dialled address decides', 'byAddress.get(destination), ', ''],
    [
      'clusters: the listener of a removed cluster',
      'if (peer.listener !== undefined && !snapshot.byName.has(peer.listener)) {',
      "if (peer.listener === '') {",
    ],
    ['clusters: shared names', 'if (other !== undefined) {', 'if (other === entry) {'],
  ),
  ...inFile(
    'src/proxy/gate/cluster-gate.ts',
    ['clusters: two names in a path', 'if (!cluster.kcp && isMounted(target)) {', "if (target === '') {"],
    [
      'clusters: no default',
      "throw new TailcastError(named === undefined ? missing(request.target) : 'CLUSTER_REFUSED');",
      'return [...snapshot.byName.values()][0]!.gate.admit(request, signal);',
    ],
    [
      'clusters: missing and refused look alike',
      "missing(request.target) : 'CLUSTER_REFUSED'",
      "missing(request.target) : 'NOT_FOUND'",
    ],
    ['clusters: replaced during a session', 'now === undefined || now.id !== before.id', 'now === undefined'],
  ),
];

const GRANTS = [
  ...inFile(
    'src/proxy/gate/gate.ts',
    [
      'clusters: grants of the Service',
      'deps.cluster?.service);\n      const standing',
      'undefined);\n      const standing',
    ],
    [
      'clusters: the caller at the Service',
      'deps.cluster?.service);\n  const standing',
      'undefined);\n  const standing',
    ],
    [
      'clusters: rechecks of the Service',
      'whois(peer, signal, deps.cluster?.service)',
      'whois(peer, signal)',
    ],
    [
      'clusters: rules of the cluster',
      'cluster === undefined ? parseKubernetesRules(capabilities) : parseClusterRules(capabilities, cluster);',
      'parseKubernetesRules(capabilities);',
    ],
    [
      'clusters: a rule is required',
      "if (cluster !== undefined && rules.impersonation.length === 0) throw new TailcastError('CLUSTER_REFUSED');",
      '',
    ],
    [
      'clusters: requests keep their cluster',
      '...(deps.cluster === undefined ? {} : { cluster: deps.cluster }),',
      '',
    ],
  ),
  ...inFile(
    'src/tailnet/capabilities.ts',
    [
      'clusters: duties of all rules',
      'applying.some(({ decides }) => decides) ? applying : all',
      'applying.length < 0 ? all : applying',
    ],
    [
      'clusters: rules without clusters',
      'named === undefined ? scope.isDefault :',
      'named === undefined ? true :',
    ],
    [
      'clusters: rules for other clusters',
      'patterns.some((pattern) => matchesName(pattern, scope.name))',
      'patterns.length > 0',
    ],
    ['clusters: complete names', ': name === pattern;', ': name.startsWith(pattern);'],
    ['clusters: spelling of names', '`${at}.clusters`, isClusterPattern)', '`${at}.clusters`)'],
  ),
  ...inFile('src/tailnet/whois.ts', [
    'clusters: one cache entry per Service',
    'const question = service === undefined ? address : `${service} ${address}`;',
    'const question = address;',
  ]),
  ...inFile(
    'src/tailnet/local-api.ts',
    ['clusters: whois for the Service', 'service === undefined ? {} : { svc_name: service }', '{}'],
    [
      'clusters: version of tailscaled',
      'if (major > needsMajor || (major === needsMajor && minor >= needsMinor)) return;',
      'return;',
    ],
  ),
];

const UPSTREAM = [
  ...inFile(
    'src/proxy/front/pump.ts',
    ['clusters: requests of one cluster', 'this.#leaveCluster = admission.cluster?.upstream.enter();', ''],
    [
      'clusters: connections of the cluster',
      'const { basePath, pool } = admission.cluster?.upstream ?? this.#deps;',
      'const { basePath, pool } = this.#deps;',
    ],
  ),
  ...inFile(
    'src/compose/clusters.ts',
    [
      'clusters: a name stays with its cluster',
      'if (known.server === server || known.authorities === authorities) {',
      "if (known.server !== '') {",
    ],
    ['clusters: addresses behind names', '...(spec.isTrusted ? {} : { lookup: guardedLookup }),', ''],
  ),
];

const OBJECTS = inFile(
  'src/kube/cluster-objects.ts',
  [
    'clusters: files and proxies in objects',
    'FOREIGN_CLUSTER.find((key) => hasValue(fields[key])) ??',
    'undefined ??',
  ],
  ['clusters: commands in objects', 'FOREIGN_USER.find((key) => hasValue(credentials[key]));', 'undefined;'],
  ['clusters: commands of Argo CD', 'FOREIGN_ARGOCD.find((key) => hasValue(config[key]));', 'undefined;'],
  [
    'clusters: objects without TLS',
    "if (cluster.value['insecure-skip-tls-verify'] === true) {",
    "if (source === '') {",
  ],
  ['clusters: own addresses in objects', 'if (isForeignHost(host))', "if (host === 'never')"],
  ['clusters: size of a kubeconfig', 'if (text.length > MAX_LENGTH)', 'if (text.length > 1e9)'],
);

export const CLUSTERS: readonly Mutation[] = [
  ...inFile(
    'src/proxy/gate/upstream-identity.ts',
    ['extras only when asked for', 'deps.auditExtras === true ?', 'true ?'],
    ['session extra only on upgrades', 'request.upgrade ? (', 'id !== "" ? ('],
    ['--as with access reviews', 'deps.reviews === undefined && access', 'access'],
    ['--as with rules of access on request', ' && access === undefined', ''],
  ),
  ...CHOICE,
  ...GRANTS,
  ...UPSTREAM,
  ...OBJECTS,
];

export const CLUSTER_SUITES: Readonly<Record<string, readonly string[]>> = {
  'src/proxy/gate/cluster.ts': ['test/proxy/gate/cluster-gate.test.ts', 'test/attack/clusters.test.ts'],
  'src/proxy/gate/cluster-gate.ts': ['test/proxy/gate/cluster-gate.test.ts', 'test/attack/clusters.test.ts'],
  'src/tailnet/capabilities.ts': [
    'test/tailnet/capabilities.test.ts',
    'test/proxy/gate/cluster-gate.test.ts',
  ],
  'src/tailnet/whois.ts': ['test/tailnet/whois.test.ts'],
  'src/tailnet/local-api.ts': ['test/tailnet/local-api.test.ts'],
  'src/compose/clusters.ts': ['test/compose/clusters.test.ts'],
  'src/kube/cluster-objects.ts': ['test/kube/cluster-objects.test.ts'],
};
