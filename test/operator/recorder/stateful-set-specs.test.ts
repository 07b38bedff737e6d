import { describe, expect, it } from 'vitest';
import { RECORDER_SETTINGS } from '../../../src/config/recorder.ts';
import { readSettings } from '../../../src/config/settings.ts';
import { isForeignImage, statefulSet } from '../../../src/operator/recorder/stateful-set-specs.ts';
import { ANNOTATIONS } from '../../../src/operator/recorder/recorder.ts';
import { assertPrivateProxyListener } from '../../../src/tailnet/proxied-listener.ts';
import { OPTIONS, recorder, S3 } from './recorders.ts';

const podOf = (spec: object, metadata: object = {}) => {
  const { template } = statefulSet(recorder(spec, metadata), OPTIONS).spec;
  const [container] = template.spec!.containers;
  const [tailscale] = template.spec!.initContainers!;
  return { template, pod: template.spec!, container: container!, tailscale: tailscale! };
};
const variablesOf = (container: { env?: { name: string; value?: string }[] }) =>
  Object.fromEntries((container.env ?? []).map(({ name, value }) => [name, value]));

describe('the StatefulSet of a Recorder', () => {
  it('takes uploads from whom the operator was told, and the resource may say otherwise', () => {
    const uploading: typeof OPTIONS = { ...OPTIONS, recorderUploaders: ['tag:k8s-gateway', 'tag:k8s'] };
    const uploadersOf = (spec: object, options = uploading): string | undefined =>
      variablesOf(statefulSet(recorder(spec), options).spec.template.spec!.containers[0]!)[
        'TAILCAST_UPLOADERS'
      ];
    expect(uploadersOf({})).toBe('tag:k8s-gateway,tag:k8s');
    const env = [{ name: 'TAILCAST_UPLOADERS', value: 'tag:ssh' }];
    expect(uploadersOf({ statefulSet: { pod: { container: { env } } } })).toBe('tag:ssh');
    expect(uploadersOf({}, OPTIONS)).toBeUndefined();
  });

  // goldens.test.ts compares a Recorder with every field of the schema.
  it('keeps its own labels, and takes the image and empty variables of the resource', () => {
    const spec = {
      storage: S3,
      statefulSet: {
        labels: { 'set-label': 'a', 'app.kubernetes.io/name': 'forged' },
        pod: {
          labels: { 'pod-label': 'c', 'app.kubernetes.io/instance': 'forged' },
          affinity: { podAntiAffinity: {} },
          container: {
            image: 'registry.example.com/tailcast:v9',
            env: [{ name: 'FOO', value: 'bar' }, { name: 'EMPTY' }],
          },
        },
      },
    };
    const { metadata } = statefulSet(recorder(spec), OPTIONS);
    expect(metadata.labels).toMatchObject({ 'set-label': 'a', 'app.kubernetes.io/name': 'recorder' });
    const { template, pod, container } = podOf(spec);
    expect(template.metadata?.labels).toEqual({
      'pod-label': 'c',
      'app.kubernetes.io/name': 'recorder',
      'app.kubernetes.io/instance': 'test',
      'app.kubernetes.io/managed-by': 'tailscale-operator',
    });
    expect(pod).not.toHaveProperty('topologySpreadConstraints');
    expect(container.image).toBe('registry.example.com/tailcast:v9');
    expect(variablesOf(container)).toMatchObject({ FOO: 'bar', EMPTY: '' });
  });

  it('shows a pod no auth key but its own', () => {
    const { pod } = podOf({ replicas: 3, storage: S3 });
    expect(JSON.stringify(pod)).not.toMatch(/authkey|auth-\d/i);
  });

  it('does not depend on the number of replicas in its template, so that scaling restarts nothing', () => {
    expect(podOf({ replicas: 5, storage: S3 }).template).toEqual(
      podOf({ replicas: 1, storage: S3 }).template,
    );
  });

  it('selects by the fixed labels only, so that pod labels can change', () => {
    const { selector, template } = statefulSet(
      recorder({ enableUI: true, statefulSet: { pod: { labels: { team: 'a' } } } }),
      OPTIONS,
    ).spec;
    expect(selector.matchLabels).toEqual({
      'app.kubernetes.io/name': 'recorder',
      'app.kubernetes.io/instance': 'test',
      'app.kubernetes.io/managed-by': 'tailscale-operator',
    });
    expect(template.metadata?.labels).toMatchObject({ ...selector.matchLabels, team: 'a' });
  });

  it('has probes, which follow the listener when the user moves it and go when he turns it off', () => {
    const withListen = (value: string) =>
      podOf({
        enableUI: true,
        statefulSet: { pod: { container: { env: [{ name: 'TAILCAST_OPS_LISTEN', value }] } } },
      }).container;
    const { container, tailscale } = podOf({ enableUI: true });
    expect(container.readinessProbe?.httpGet).toEqual({ path: '/readyz', port: 9003 });
    expect(container.livenessProbe?.httpGet).toEqual({ path: '/livez', port: 9003 });
    expect(tailscale.readinessProbe?.httpGet).toEqual({ path: '/healthz', port: 9002 });
    expect(withListen(':7000').readinessProbe?.httpGet).toEqual({ path: '/readyz', port: 7000 });
    expect(withListen('off')).not.toHaveProperty('readinessProbe');
  });

  it('is locked down and spread over nodes where nobody says otherwise', () => {
    const { pod, container, tailscale } = podOf({ enableUI: true });
    for (const { securityContext } of [container, tailscale]) {
      expect(securityContext).toMatchObject({
        runAsNonRoot: true,
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      });
    }
    expect(pod.topologySpreadConstraints).toMatchObject([{ whenUnsatisfiable: 'ScheduleAnyway' }]);
  });

  it.each<[string, object, object, object]>([
    [
      'S3, by its host',
      { storage: S3 },
      {},
      {
        store: 's3://recordings',
        s3Endpoint: 'https://s3.us-east-1.amazonaws.com/',
        spool: '/data/spool',
        ui: false,
      },
    ],
    [
      'S3, by a URL',
      { storage: { s3: { endpoint: 'http://minio.storage:9000', bucket: 'b' } } },
      {},
      { store: 's3://b', s3Endpoint: 'http://minio.storage:9000/', spool: '/data/spool' },
    ],
    ['the pod', { enableUI: true }, {}, { store: '/data/recordings', s3Endpoint: undefined, ui: true }],
    [
      'a volume',
      { enableUI: true },
      { annotations: { [ANNOTATIONS.volumeSize]: '50Gi' } },
      { store: '/data/recordings', ui: true },
    ],
  ])('tells the recorder about %s in words that it reads', (_name, spec, metadata, expected) => {
    const { container } = podOf(spec, metadata);
    const environment = new Map(
      container.env!.map(({ name, value }) => [
        name,
        (value ?? 'test-0').replaceAll('$(POD_NAME)', 'test-0'),
      ]),
    );
    const config = readSettings(RECORDER_SETTINGS, { flags: new Map(), environment, file: undefined });
    const settings = { ...config, s3Endpoint: config.s3Endpoint?.href };
    expect(settings).toMatchObject({
      listen: { host: '127.0.0.1', port: 80 },
      opsListen: { port: 9003 },
      socket: '/run/tailscale/sock',
      hosts: ['test-0', 'test-0.example.ts.net'],
      drainSeconds: 45,
      ...expected,
    });
  });

  it('signs for the region that the reference’s S3 client would take', () => {
    const regionOf = (...env: readonly object[]) =>
      variablesOf(podOf({ storage: S3, statefulSet: { pod: { container: { env } } } }).container)[
        'TAILCAST_S3_REGION'
      ];
    expect(regionOf()).toBeUndefined();
    expect(regionOf({ name: 'AWS_DEFAULT_REGION', value: 'eu-west-1' })).toBe('eu-west-1');
    expect(
      regionOf({ name: 'AWS_DEFAULT_REGION', value: 'eu-west-1' }, { name: 'AWS_REGION', value: 'minio' }),
    ).toBe('minio');
    expect(regionOf({ name: 'AWS_REGION', value: 'a' }, { name: 'TAILCAST_S3_REGION', value: 'b' })).toBe(
      'b',
    );
  });

  it('keeps recordings in the pod without S3', () => {
    const { container } = podOf({ enableUI: true });
    expect(variablesOf(container)).toMatchObject({
      TSRECORDER_DST: '/data/recordings',
      TSRECORDER_UI: 'true',
      TAILCAST_STORE: '/data/recordings',
      TAILCAST_UI: 'true',
      TAILCAST_HOSTS: '$(POD_NAME),$(POD_NAME).example.ts.net',
    });
    expect(container).not.toHaveProperty('envFrom');
  });

  it('lets the user’s variables win, once each, and translates the reference’s', () => {
    const env = [
      { name: 'TSRECORDER_DST', value: '/data/elsewhere' },
      { name: 'TSRECORDER_UI', value: 'false' },
      { name: 'TAILCAST_LOG_LEVEL', value: 'info' },
      { name: 'TAILCAST_LOG_LEVEL', value: 'debug' },
      { name: 'POD_NAME', value: 'mine' },
    ];
    const { container } = podOf({ enableUI: true, statefulSet: { pod: { container: { env } } } });
    const names = container.env!.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    expect(variablesOf(container)).toMatchObject({
      TSRECORDER_DST: '/data/elsewhere',
      TSRECORDER_UI: 'false',
      TAILCAST_STORE: '/data/elsewhere',
      TAILCAST_UI: 'false',
      TAILCAST_LOG_LEVEL: 'debug',
      POD_NAME: 'mine',
    });
  });

  it('serves the player on HTTPS when it is wanted, by a file that comes from an annotation', () => {
    const { template, pod, tailscale, container } = podOf({ enableUI: true });
    const annotation = template.metadata?.annotations?.['tailcast.dev/serve-config'] ?? '';
    expect(JSON.parse(annotation)).toEqual({
      TCP: {
        443: { TCPForward: '127.0.0.77:8080', TerminateTLS: '${TS_CERT_DOMAIN}', ProxyProtocol: 2 },
      },
    });
    expect(variablesOf(container)['TAILCAST_PROXY_PROTOCOL']).toBe('127.0.0.77:8080');
    expect(() => assertPrivateProxyListener('127.0.0.77')).not.toThrow();
    expect(variablesOf(tailscale)['TS_SERVE_CONFIG']).toBe('/etc/tailcast/serve.json');
    expect(pod.volumes?.map(({ name }) => name)).toContain('serve');
    const without = podOf({ storage: S3 });
    expect(JSON.stringify(without)).not.toMatch(/serve\.json|serve-config|PROXY_PROTOCOL/);
  });

  it('never forwards viewers to the word that turns the listener off', () => {
    const env = [{ name: 'TAILCAST_PROXY_PROTOCOL', value: 'off' }];
    const { template } = podOf({ enableUI: true, statefulSet: { pod: { container: { env } } } });
    expect(template.metadata?.annotations?.['tailcast.dev/serve-config']).toContain(
      '"TCPForward":"127.0.0.77:8080"',
    );
  });

  it('forwards viewers to the address in the environment, and leaves the listener for viewers to the tailnet', () => {
    const env = [
      { name: 'TAILCAST_READ_LISTEN', value: '127.0.0.1:8081' },
      { name: 'TAILCAST_PROXY_PROTOCOL', value: '127.0.0.78:9000' },
    ];
    const { template, container } = podOf({ enableUI: true, statefulSet: { pod: { container: { env } } } });
    expect(template.metadata?.annotations?.['tailcast.dev/serve-config']).toContain(
      '"TCPForward":"127.0.0.78:9000"',
    );
    expect(variablesOf(container)).toMatchObject({
      TAILCAST_LISTEN: '127.0.0.1:80',
      TAILCAST_READ_LISTEN: '127.0.0.1:8081',
      TAILCAST_PROXY_PROTOCOL: '127.0.0.78:9000',
    });
  });

  it('asks for volumes where the annotations do, and keeps them when pods go', () => {
    const metadata = { annotations: { [ANNOTATIONS.volumeSize]: '50Gi', [ANNOTATIONS.volumeClass]: 'fast' } };
    const { spec } = statefulSet(recorder({ enableUI: true }, metadata), OPTIONS);
    expect(spec.volumeClaimTemplates).toMatchObject([
      {
        metadata: { name: 'data' },
        spec: { storageClassName: 'fast', resources: { requests: { storage: '50Gi' } } },
      },
    ]);
    expect(spec.persistentVolumeClaimRetentionPolicy).toEqual({
      whenDeleted: 'Retain',
      whenScaled: 'Retain',
    });
    expect(spec.template.spec?.volumes?.map(({ name }) => name)).not.toContain('data');
  });

  it('leads the recorder to an OpenSearch where the annotations do, with files of their Secrets', () => {
    const metadata = {
      annotations: {
        [ANNOTATIONS.searchUrl]: 'https://opensearch.example.com:9200',
        [ANNOTATIONS.searchCredentials]: 'opensearch-user',
        [ANNOTATIONS.searchCa]: 'opensearch-ca',
      },
    };
    const env = [{ name: 'TAILCAST_SEARCH_NAME', value: 'audit' }];
    const spec = { storage: S3, statefulSet: { pod: { container: { env } } } };
    const { pod, container } = podOf(spec, metadata);
    expect(variablesOf(container)).toMatchObject({
      TAILCAST_SEARCH: 'true',
      TAILCAST_SEARCH_URL: 'https://opensearch.example.com:9200',
      TAILCAST_SEARCH_NAME: 'audit',
      TAILCAST_SEARCH_CREDENTIALS: '/etc/tailcast/search/credentials',
      TAILCAST_SEARCH_CA: '/etc/tailcast/search/ca.crt',
    });
    expect(container.volumeMounts).toContainEqual({
      name: 'search',
      mountPath: '/etc/tailcast/search',
      readOnly: true,
    });
    expect(pod.volumes).toContainEqual({
      name: 'search',
      projected: {
        defaultMode: 0o440,
        sources: [
          { secret: { name: 'opensearch-user', items: [{ key: 'credentials', path: 'credentials' }] } },
          { secret: { name: 'opensearch-ca', items: [{ key: 'ca.crt', path: 'ca.crt' }] } },
        ],
      },
    });
    expect(JSON.stringify(podOf(spec))).not.toMatch(/"search"|TAILCAST_SEARCH_URL/);
  });

  it('mounts nothing for an OpenSearch that needs no Secret', () => {
    const annotations = { [ANNOTATIONS.searchUrl]: 'http://opensearch.search:9200' };
    const set = statefulSet(recorder({ storage: S3 }, { annotations }), OPTIONS);
    expect(JSON.stringify(set)).toContain('TAILCAST_SEARCH_URL');
    expect(JSON.stringify(set)).not.toMatch(/"search"|TAILCAST_SEARCH_C/);
  });

  it.each([
    ['tailscale/tsrecorder:v1.80.0', true],
    ['registry.example.com:5000/mirror/tsrecorder@sha256:00', true],
    ['tsrecorder', true],
    ['registry.example.com/tsrecorder-tools:v1', false],
    ['tailcast/tailcast', false],
    ['', false],
  ])('knows the image that cannot run beside tailscaled: %s', (image, foreign) => {
    expect(isForeignImage(image)).toBe(foreign);
    const { container } = podOf({ enableUI: true, statefulSet: { pod: { container: { image } } } });
    expect(container.image).toBe(foreign || image === '' ? 'tailcast/tailcast:v1' : image);
  });
});
