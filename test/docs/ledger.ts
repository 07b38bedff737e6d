/**
 * Every command in README and `docs/`, with the test that runs it. `ledger.test.ts` fails if this list lacks a command
 * of a page, and if an entry is on no page. The named tests read the commands from this file, so they
 * test exactly the commands on the pages.
 */

/** Values on the pages (addresses, folders, names), each with the value that a test uses instead. */
export type Words = Readonly<Record<string, string>>;

export interface Shown {
  readonly page: string;
  readonly command: string;
  /** The test that runs the command. */
  readonly runner: Runner;
}

/**
 * The test that runs a command. `tools`: `ledger.test.ts`. `host` or `chart`: the real suite of this name. An object:
 * the test at `path` with the text `contains`. This test does the same as the command in another form, for the reason
 * `why`.
 */
export type Runner =
  | 'tools'
  | 'host'
  | 'chart'
  | { readonly path: string; readonly contains: string; readonly why: string };

/** The commands of one page. */
function on(page: string, commands: Readonly<Record<string, Runner>>): readonly Shown[] {
  return Object.entries(commands).map(([command, runner]) => ({ page, command, runner }));
}

/**
 * Returns a function that creates the runners of several commands. The test in `path` runs all of them in another form,
 * for the reason `why`.
 */
function by(path: string, why: string): (contains: string) => Runner {
  return (contains) => ({ path, contains, why });
}

const DEMO: Runner = {
  path: 'test/e2e/demo.test.ts',
  contains: "run(['demo'], home)",
  why: 'the same program with a port and a folder of its own; the script builds first, as `npm test` does',
};
const SELF: Runner = {
  path: 'package.json',
  contains: '"test": "node scripts/run.mjs build -- vitest run"',
  why: 'it is what runs this test',
};
const POD: Runner = {
  path: 'test/real/suites/chart-tailnet.test.ts',
  contains: "'doctor', 'gateway', '--json'",
  why: 'needs a container to look into: the same command runs as the pod’s user with the pod’s variables',
};
const BY_ALERTS = by(
  'test/tsrecorder/search/alerts/alert-commands.test.ts',
  'the same with a webhook and a store of its own',
);

const SERVE = 'tailscale serve --bg --tcp 443 --proxy-protocol 2 tcp://127.0.0.77:8443';
const BEHIND_SERVE =
  '--listen 127.0.0.77:8443 --proxy-protocol require --tls tailscale --recorder-dial tailscale';
const RECORDER =
  '--listen $(tailscale ip -4):80 --store /var/lib/tailcast/recordings --uploaders tag:k8s-gateway';
const BY_ORDERS = by(
  'test/proxy/session/orders.test.ts',
  'the same command with the address of a recorder, on a running session',
);
const INSTALL = 'docs/install.md';
const WATCH = 'docs/watch.md';
const ACCESS = 'docs/access.md';
const BY_REHEARSAL = by(
  'test/real/suites/migrate.test.ts',
  'the rehearsal, with addresses and folders of its own',
);
const TAKE_OVER =
  'helm install tailcast deploy/chart/tailcast --namespace tailscale --take-ownership ' +
  '--set image.repository=REGISTRY/tailcast ' +
  '--set operator.enabled=true --set operator.secret=operator-oauth --set gateway.enabled=false';
const BY_REAL = (contains: string, path = 'test/real/suites/access-cluster.test.ts'): Runner => ({
  path,
  contains,
  why: 'the same access with the API of the gateway, through a tailnet',
});
const BY_CLI = by('test/e2e/demo-access-requests.test.ts', 'the same command with the kubeconfigs of a demo');

const RELEASE: Runner = {
  path: 'test/real/support/release.ts',
  contains: "'--dry-run', '--arch=amd64'",
  why: 'the same script, for one kind of processor and into a folder of the test',
};

const SEALED = by(
  'test/tsrecorder/archives.test.ts',
  'the same in a directory of the test, and with a key that it makes itself',
);

const CLEANUP: Runner = {
  path: 'test/real/suites/operator-egress.test.ts',
  contains: "['--cleanup']",
  why: 'the same setting as a flag, because the operator of that suite runs outside of the cluster',
};

export const LEDGER: readonly Shown[] = [
  ...on('docs/clusters.md', {
    'tailcast kubeconfig --all gateway.example.ts.net': {
      path: 'test/cli/kubeconfig-all.test.ts',
      contains: 'all: true, certificateAuthority: ca, file',
      why: 'the same function, with a gateway on loopback and a file of the test',
    },
  }),
  ...on(ACCESS, {
    'kubectl apply --server-side -k deploy/access': BY_REAL(
      'access/${file}.yaml',
      'test/real/support/access-cluster.ts',
    ),
    'kubectl --as=me --as-group=sre delete pod web-1': BY_REAL("'--as=me', '--as-group=sre'"),
    "kubectl tailcast request --group sre --reason 'disk of web-1 is full' --for 1h --wait": BY_CLI(
      "'request', '--group', 'sre'",
    ),
    'kubectl tailcast requests': BY_CLI("cli('requests'"),
    'kubectl tailcast approve k7m2p9xq4t': BY_CLI("'approve'"),
    "kubectl tailcast deny k7m2p9xq4t --reason 'not during the freeze'": BY_CLI("'deny'"),
    "kubectl tailcast revoke k7m2p9xq4t --reason 'incident is over'": BY_CLI("'revoke'"),
    'tailcast report --since 30d --context prod': BY_CLI("'report', '--since', '30d'"),
    'tailcast report --since 30d --format csv --recorder http://127.0.0.1:8080 > access.csv':
      BY_CLI("'--format', 'csv'"),
    'tailcast alerts test alerts.yaml --no-search --deliver': BY_ALERTS(
      "await run('alerts', 'test', file, '--no-search', '--deliver')",
    ),
    'tailcast recorder --alerts alerts.yaml …': BY_ALERTS("search: 'false', alerts: file"),
  }),
  ...on('docs/operator.md', {
    'kubectl -n tailcast exec deploy/tailcast-operator -- node /app/scripts/tailcast.mjs doctor operator': {
      path: 'test/real/operator/installation.ts',
      contains: "'doctor', 'operator', '--json'",
      why:
        'the same command under the operator’s account, because the operator of that suite runs outside of ' +
        'the cluster',
    },
    'kubectl -n tailcast set env deployment/tailcast-operator TAILCAST_CLEANUP=true': CLEANUP,
    'kubectl -n tailcast logs -f -l app.kubernetes.io/component=operator --prefix': CLEANUP,
  }),
  ...on('docs/record.md', {
    'umask 077; openssl rand -base64 32 > seal-keys': SEALED("bytes.toString('base64')"),
    'tailcast recorder --store s3://recordings --spool /var/spool/tailcast --archive sealed --seal-keys seal-keys':
      SEALED("archive: 'sealed'"),
    'TAILCAST_SEAL_KEYS=seal-keys tailcast verify s3://recordings --key recorder.pub': SEALED(
      "['TAILCAST_SEAL_KEYS', keyFile(rig.directory)]",
    ),
    ['tailcast recorder --store /var/lib/tailcast/recordings --spool /var/lib/tailcast/spool-2 --listen ' +
    '127.0.0.1:8081 --ops-listen 127.0.0.1:9004 --evidence-key /etc/tailcast/key.pem']: {
      path: 'test/e2e/site.ts',
      contains: 'spool: join(directory, `spool-${name}`)',
      why: 'two of them on one store, with folders and ports of their own, in rolling-restart.test.ts',
    },
  }),
  ...on('README.md', {
    'npm start': DEMO,
    'npm test': SELF,
    'npx tailcast ls': 'tools',
    'npx tailcast play latest --speed 2 --idle-limit 1': 'tools',
    [`tailcast recorder ${RECORDER}`]: 'host',
  }),
  ...on(INSTALL, {
    'npm run release -- --dry-run': RELEASE,
    'tailcast gateway --listen 127.0.0.1:443 --tls tailscale --recorder-dial tailscale': 'host',
    'npm start': DEMO,
  }),
  ...on('README.md', {
    [SERVE]: 'host',
    [`tailcast gateway ${BEHIND_SERVE}`]: 'host',
  }),
  ...on(INSTALL, {
    'kubectl create namespace tailcast': 'chart',
    ['kubectl -n tailcast create secret generic tailscale-oauth --from-literal=client_id=... ' +
    '--from-literal=client_secret=tskey-client-...']: 'chart',
    ['helm install tailcast deploy/chart/tailcast --namespace tailcast --set image.repository=REGISTRY/tailcast ' +
    '--set recorder.enabled=true --set tailscale.domain=tail1234.ts.net ' +
    '--set tailscale.oauthSecret=tailscale-oauth']: 'chart',
    'kubectl -n tailcast rollout status statefulset tailcast-gateway': {
      path: 'test/real/suites/chart-tailnet.test.ts',
      contains: '${role} is ready',
      why: 'no kubelet runs the pods of that suite, so it waits for the processes instead',
    },
    'kubectl -n tailcast exec tailcast-gateway-0 -c gateway -- node /app/scripts/tailcast.mjs doctor gateway':
      POD,
    'tailcast kubeconfig tailcast-gateway-0 tailcast-gateway-1': 'tools',
    'kubectl apply -k deploy/kustomize/gateway-auth': 'chart',
  }),
  ...on('docs/migration.md', {
    'tailcast migrate check --policy policy.json': BY_REHEARSAL("'--policy',"),
    ['tailcast recorder --listen $(tailscale ip -4):80 --store s3://recordings --spool /var/lib/tailcast/spool ' +
    '--uploaders tag:k8s,tag:k8s-gateway']: BY_REHEARSAL('startSiteRecorder(rig'),
    'tailcast ls --recorder http://$(tailscale ip -4)': BY_REHEARSAL("runCommand('ls', '--recorder'"),
    'tailcast kubeconfig tailcast-gateway': BY_REHEARSAL('kubeconfigAt(tailnet.node'),
    'kubectl -n tailscale scale deployment operator --replicas=0': 'chart',
    [TAKE_OVER]: 'chart',
    'kubectl -n tailscale delete secret -l owner=helm,name=tailscale-operator': 'chart',
    'kubectl -n tailscale delete deployment operator': 'chart',
  }),
  ...on(INSTALL, {
    'kubectl apply -k deploy/kustomize/recorder': 'chart',
    'kubectl apply --server-side -k deploy/kustomize/operator': 'chart',
    [SERVE]: 'host',
    [`tailcast gateway ${BEHIND_SERVE}`]: 'host',
    [`tailcast doctor gateway ${BEHIND_SERVE}`]: 'host',
    'tailcast gateway --listen 100.64.0.9:443 --tls tailscale': 'host',
    [`tailcast recorder ${RECORDER}`]: 'host',
    [`tailcast doctor recorder ${RECORDER}`]: 'host',
  }),
  ...on('docs/operate.md', {
    'tailcast doctor gateway --json': 'host',
    'tailcast doctor recorder --json --store /var/lib/tailcast/recordings': 'host',
  }),
  ...on('docs/k3s.md', {
    'sudo tailcast gateway --k3s': {
      path: 'test/real/suites/k3s.test.ts',
      contains: 'k3s: true',
      why: 'it needs a k3s server',
    },
  }),
  ...on(WATCH, {
    'tailcast ls --recorder http://recorder.tail1234.ts.net --user alice@example.com --limit 20': 'tools',
    'tailcast play latest --recorder http://recorder.tail1234.ts.net --speed 2 --idle-limit 1': 'tools',
    'tailcast ls --store /var/lib/tailcast/recordings --json': 'tools',
    'tailcast ls --since 7d --text deploy --sort -size': 'tools',
    'tailcast alerts test alerts.yaml --recorder http://127.0.0.1:8080': {
      path: 'test/tsrecorder/search/alerts/alert-commands.test.ts',
      contains: "await run('alerts', 'test', file, ...recorder)",
      why: 'the same with a recorder and a file of its own',
    },
    'tailcast alerts test alerts.yaml --no-search --deliver': {
      path: 'test/tsrecorder/search/alerts/alert-commands.test.ts',
      contains: "await run('alerts', 'test', file, 'found', '--no-search', '--deliver')",
      why: 'the same with one rule of a file of its own',
    },
    'tailcast recorder --search true --alerts alerts.yaml …': {
      path: 'test/tsrecorder/search/alerts/alert-commands.test.ts',
      contains: "search: 'true', alerts: file",
      why: 'the same settings with a store and ports of its own',
    },
    'tailcast ls --columns id,started,who,problem': 'tools',
    'tailcast sessions --context prod': BY_ORDERS("run('sessions'"),
    'tailcast watch latest --context prod': BY_ORDERS("run('watch'"),
    "tailcast end latest --context prod --reason 'change freeze'": BY_ORDERS("run('end'"),
    'tailcast play latest --from 0:10 --speed 2 --fit': 'tools',
    'tailcast clip latest --from 1:30 --to 1:45': {
      path: 'test/cli/clip.test.ts',
      contains: "'latest', '--from', '1:30', '--to', '1:45'",
      why: 'the same with a store and an output file of its own',
    },
    'tailcast export latest': {
      path: 'test/bundle/bundle.test.ts',
      contains: "await run(id, ...place, '--output', target)",
      why: 'the same with the id, and into a folder of its own',
    },
    'tailcast export <id> --format txt --output -': {
      path: 'test/bundle/bundle.test.ts',
      contains: "await run('latest', ...place, '--format', 'txt', '--output', '-')",
      why: 'the same with the newest one',
    },
    'tailcast export <id> --format stdout': {
      path: 'test/tsrecorder/exact-output.test.ts',
      contains: "await exported(id, 'stdout')",
      why: 'the same to standard output, of sessions made for it',
    },
    "curl 'http://recorder/api/v1/events?type=tailcast-recording-access&user=alice@example.com'": {
      path: 'test/tsrecorder/events/recorder-events.test.ts',
      contains: '/api/v1/events?type=tailcast-recording-access&user=alice@example.com',
      why: 'the same query without curl',
    },
    "curl 'http://recorder/api/v1/events?resource=secrets&verb=delete&namespace=prod&name=db'": {
      path: 'test/tsrecorder/events/recorder-events.test.ts',
      contains: '&verb=delete&resource=pods&text=WEB-4',
      why: 'the same filters with another resource, without curl',
    },
    [`tailcast recorder ${RECORDER} --trusted-gateways ` +
    "tag:k8s-gateway --viewers 'carol@example.com,tag:audit,alice@example.com=user:alice@example.com'"]: {
      path: 'test/real/suites/people-pages.test.ts',
      contains: "'trusted-gateways': 'tag:k8s' }",
      why: 'the same flags with a port, a folder and rules of its own',
    },
  }),
];

/** Different commands of one runner, in the order of the pages. */
export function commandsOf(runner: Extract<Runner, string>): readonly string[] {
  return [
    ...new Set(
      LEDGER.filter((shown) => shown.runner === runner).map(({ command }) => command.replace(/^npx /, '')),
    ),
  ];
}

/**
 * Returns the arguments of a command from a page, with each key of `words` replaced by its value. Throws if the command
 * does not contain a key, because then the page was changed.
 */
export function argumentsOf(command: string, words: Words): readonly string[] {
  let text = command;
  for (const [shown, ours] of Object.entries(words)) {
    if (!text.includes(shown)) throw new Error(`"${command}" has no ${shown}`);
    text = text.replaceAll(shown, ours);
  }
  return text.split(' ');
}

/** The commands of a page's shell blocks, without prompts, comments and continuations. */
export function shownIn(markdown: string): readonly string[] {
  return [...markdown.matchAll(/^ *```(?:sh|bash|shell)\n([\s\S]*?)^ *```/gm)]
    .flatMap((match) => (match[1] ?? '').replaceAll(/\s*\\\n\s*/g, ' ').split('\n'))
    .map((line) => line.replace(/\s+#.*$/, '').trim())
    .filter((line) => line !== '' && !line.startsWith('#'));
}
