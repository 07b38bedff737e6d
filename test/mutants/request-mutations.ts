/** The checks that parse a request below a cluster prefix and its body for an event, and their removals. */
import { inFile, type Mutation } from './mutation.ts';

const INFO = inFile(
  'src/kube/request-info.ts',
  ['prefixes of logical clusters', "if (first === 'clusters') return CLUSTER_NAME.test(second) ? 2 : 0;", ''],
  [
    'prefixes with an id',
    "return first === 'k8s' && second === 'clusters' && CLUSTER_NAME.test(third) ? 3 : 0;",
    'return 0;',
  ],
);

const EVENTS = [
  ...inFile(
    'src/recording/redact-body.ts',
    ['repeated members', 'if (countMembers(json) !== countColons(text))', 'if (text === "")'],
    ['bodies that are cut', 'if (truncated) return', 'if (body.length < 0) return'],
    ['containers of custom resources', 'keep(value, CONTAINER_MEMBERS[name])', 'REDACTED'],
    ['values next to containers', ': keepContainers(value),', ': value,'],
  ),
  ...inFile('src/recording/request-event.ts', [
    'bodies that are required',
    'if (isBodyRequired === true && described.bodyUnread',
    'if (described.bodyUnread === "" && described.bodyUnread',
  ]),
  ...inFile(
    'src/recording/kept-fields.ts',
    ['commands of probes', '  ...PROBES,\n', ''],
    ['commands of hooks', 'postStart: HANDLER,', ''],
    [
      'headers of probes',
      "httpGet: fields({ path: 'path', ...all('port', 'host', 'scheme') })",
      "...all('httpGet')",
    ],
  ),
];

export const REQUESTS: readonly Mutation[] = [...INFO, ...EVENTS];
