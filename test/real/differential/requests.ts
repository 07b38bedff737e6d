/** Random request lines. Most requests differ slightly from a valid Kubernetes request. */
import type { Random } from '../../support/random.ts';

/** Names that exist in the cluster under test. */
export const NAMES = { namespace: 'n', pods: ['p', 'exec', 'attach'], node: 'node-1', service: 's' } as const;

export interface RequestLine {
  readonly method: string;
  /** Each character stands for one byte. */
  readonly target: string;
}

const METHODS = words(
  'GET GET GET GET GET GET GET GET GET GET',
  'POST POST POST PUT PATCH DELETE HEAD OPTIONS get FOO TRACE Post',
);

const PREFIXES = [
  ...words(
    '/api/v1/namespaces/n/pods/p /api/v1/namespaces/n/pods/p /api/v1/namespaces/n/pods/p /api/v1/namespaces/n/pods',
    '/api/v1/nodes/node-1',
    '/api/v1/namespaces/n/services/s /api/v1/namespaces/n/services/http:s:80 /api/v1/namespaces/n/pods/http:p:1',
    '/api/v1/nodes/https:node-1:1 /api/v1/namespaces/n /api/v1/namespaces /api/v1/pods /api/v1 /api /apis',
    '/apis/apps /apis/apps/v1 /apis/apps/v1/namespaces/n/deployments/d /apis/apps/v1/deployments',
    '/apis/aggregated.example/v1/clusters/c /apis/aggregated.example/v1/clusters/c ' +
      '/apis/aggregated.example/v1/clusters',
    '/apis/aggregated.example/v1/namespaces/n/pods/p /apis/aggregated.example/v1/nodes/node-1',
    '/apis/aggregated.example/v1/clusters/c/proxy/api/v1/nodes/node-1 /apis/aggregated.example/v1/clusters/c/through',
    '/apis/example.net/v9/namespaces/n/pods/p /apis/rbac.authorization.k8s.io/v1/clusterroles/view',
    '/api/v1/watch/namespaces/n/pods /api/v1/watch/namespaces/n/pods/p /api/v1/watch/pods',
    '/api/v1/proxy/namespaces/n/pods/p /api/v1/proxy/nodes/node-1 /api/v1/namespaces/pods/pods/exec',
    '/api/v1/namespaces/n/pods/exec /api/v1/namespaces/exec/pods/attach',
    '/healthz /openapi/v2 /version /metrics /logs /',
  ),
  '',
];

const TAILS = words(
  'exec exec exec attach attach portforward portforward proxy proxy/ proxy/exec/n/p/main proxy/run/n/p/main',
  'proxy/a/b proxy/.. proxy/a//b proxy/a%2fb proxy/%2e%2e/exec proxy/x;y=1/z log status ephemeralcontainers',
  'binding eviction finalize resize scale EXEC Exec exec/x exec/exec %65xec exe%63 ex%65c%2F %2Fexec exec%00',
  'exec;a=b exec%3b exec%20 exec. exec%2f.. attach%2F%2F pods/p/exec namespaces/n/pods/p/exec',
);

const INSERTIONS = [
  ...words(
    '/ // /./ /../ . .. ; ;a %2F %2f %5C \\ % %zz %25 %252F %00 %0a %0d %20 + %2B %2e %2E%2e %3F %23 : @ ! $',
    '( , = ~ * | ^ ` { " < [ %c3%a9 %ff %C0%AF %e2%80%ae A z watch/ proxy/ namespaces/ exec pods/ v1/ - _ # ? & x',
  ),
  "'",
  '\t',
  '\x7f',
  '\xe9',
];

const PARAMETERS = words(
  'watch watch= watch=1 watch=true watch=0 watch=false watch=FALSE watch=False watch=no watch=%74rue w%61tch=1',
  'watch=fal%C5%BFe Watch=1 watch=0&watch=1 watch=1&watch=0 watch=%30 watch=+ watch=%20false watch=1;x ;watch=1',
  'watch;=1 watch=%zz %zz=1 watch=%ff fieldSelector=metadata.name%3Dx fieldSelector=metadata.name=p',
  'fieldSelector=metadata.name%3D%3Dx fieldSelector=metadata.name!%3Dx fieldSelector=status.phase%3DRunning',
  'fieldSelector=a%5C fieldSelector= fieldSelector=metadata.name%3Da%2Fb fieldSelector=metadata.name%3D..',
  'fieldSelector=metadata.name%3D%25 fieldSelector=metadata.name%3Dx%2Cstatus.phase%3DRunning',
  'fieldSelector=,metadata.name%3Dx fieldSelector=metadata.name%3Dx%5C%2Cy fieldSelector=metadata.name%3D',
  'fieldSelector=metadata.name labelSelector=a%3Db labelSelector=a labelSelector=!a labelSelector=a+in+(b,c)',
  'labelSelector=a+in+(b labelSelector=%3D labelSelector=a%3Db%2C labelSelector=a%3E5 labelSelector=a%3Ex',
  'labelSelector=x%2Fy labelSelector=a%3D-b labelSelector=a%3D%3Db,c limit=5 limit= limit=x limit=%2B5 limit=-1 ' +
    'limit=9223372036854775808 limit=1&limit=x',
  'timeoutSeconds=1 timeoutSeconds=x timeoutSeconds= continue=x resourceVersion=1 sendInitialEvents=x',
  'allowWatchBookmarks=x resourceVersionMatch=x command=sh command=sh&command=-c stdin tty=1 container=main',
  'path=/exec follow=true as=Table a=b=c =x & && a;b=1 x=% %00=1',
);

/** Splits lines into words, so that the long lists of words above need few lines of code. */
function words(...lines: readonly string[]): readonly string[] {
  return lines.flatMap((line) => line.split(' '));
}

/** Returns a random request line. */
export function randomRequest(random: Random): RequestLine {
  return { method: random.pick(METHODS), target: `${randomPath(random)}${randomQuery(random)}` };
}

function randomPath(random: Random): string {
  let path = random.pick(PREFIXES);
  if (!random.oneIn(4)) path += `/${random.pick(TAILS)}`;
  if (random.oneIn(12)) path += `/${random.pick(TAILS)}`;
  if (random.oneIn(6)) path += '/';
  const steps = random.pick([0, 0, 0, 1, 1, 1, 2, 3]);
  for (let step = 0; step < steps; step++) path = mutate(random, path);
  return path;
}

/** Makes one small change at a random position. */
function mutate(random: Random, path: string): string {
  const at = random.below(path.length + 1);
  const character = path.charAt(at);
  switch (random.below(10)) {
    case 0:
    case 1:
    case 2:
      return path.slice(0, at) + random.pick(INSERTIONS) + path.slice(at);
    case 3:
    case 4:
      return path.slice(0, at) + percent(random, character) + path.slice(at + 1);
    case 5:
      return path.slice(0, at) + swapCase(character) + path.slice(at + 1);
    case 6:
      return path.slice(0, at) + path.slice(at + 1);
    case 7:
      return replaceSegment(random, path, (segment) =>
        random.pick([segment + segment, '', '.', '..', 'exec', 'pods']),
      );
    case 8:
      return replaceSegment(random, path, (segment) =>
        segment.replaceAll(/[^]/g, (each) => percent(random, each)),
      );
    default:
      return random.oneIn(6)
        ? random.pick(['http://h', 'https://h:1', '//h', '*', '/.', '/..', '/x/..', 'h']) + path
        : replaceSegment(random, path, (segment) => `${segment}/${random.pick(['x', 'exec', '.', '', 'p'])}`);
  }
}

function percent(random: Random, character: string): string {
  if (character === '') return '';
  const digits = character.charCodeAt(0).toString(16).padStart(2, '0');
  return `%${random.oneIn(2) ? digits : digits.toUpperCase()}`;
}

function swapCase(character: string): string {
  const upper = character.toUpperCase();
  return upper === character ? character.toLowerCase() : upper;
}

function replaceSegment(random: Random, path: string, replace: (segment: string) => string): string {
  const segments = path.split('/');
  const at = random.below(segments.length);
  segments[at] = replace(segments[at] ?? '');
  return segments.join('/');
}

function randomQuery(random: Random): string {
  if (random.oneIn(2)) return '';
  const parameters = random.list(4, () => {
    const parameter = random.pick(PARAMETERS);
    if (!random.oneIn(12)) return parameter;
    const at = random.below(parameter.length + 1);
    return parameter.slice(0, at) + random.pick(INSERTIONS) + parameter.slice(at);
  });
  return `?${parameters.join('&')}`;
}
