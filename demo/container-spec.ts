import { arrayAt, flagAt, numberAt, stringAt, stringsAt, type Json, type ApiObject } from './json.ts';

/** Fields of a container in a pod's spec that the demo uses. Images are never pulled; only their names are used. */
export interface ContainerSpec {
  readonly name: string;
  readonly image: string;
  /** `command` and `args` together. Empty if the spec has neither `command` nor `args`. */
  readonly argv: readonly string[];
  readonly stdin: boolean;
  readonly stdinOnce: boolean;
  readonly tty: boolean;
  readonly environment: Readonly<Record<string, string>>;
  readonly ports: readonly number[];
}

/** Reads a container from the spec of a pod. Missing fields become empty values. */
function parseContainer(container: Json): ContainerSpec {
  return {
    name: stringAt(container, 'name'),
    image: stringAt(container, 'image'),
    argv: [...stringsAt(container, 'command'), ...stringsAt(container, 'args')],
    stdin: flagAt(container, 'stdin'),
    stdinOnce: flagAt(container, 'stdinOnce'),
    tty: flagAt(container, 'tty'),
    environment: Object.fromEntries(
      arrayAt(container, 'env').map((entry) => [stringAt(entry, 'name'), stringAt(entry, 'value')]),
    ),
    ports: arrayAt(container, 'ports').flatMap((port) => numberAt(port, 'containerPort') ?? []),
  };
}

/** Program that a container runs. */
export type Program =
  | { readonly kind: 'command'; readonly argv: readonly string[] }
  | { readonly kind: 'web' }
  | { readonly kind: 'idle'; readonly lines: readonly string[] };

const WEB_IMAGE = /(^|\/)(nginx|httpd|caddy)(:|@|-|$)/;

/**
 * Returns the program that a container runs: its command, if the spec has one. Without a command, a web image gets a
 * web server, a container with input gets a shell, and any other container gets a program that waits.
 */
export function chooseProgram(spec: ContainerSpec, shell: string): Program {
  if (spec.argv.length > 0) return { kind: 'command', argv: spec.argv };
  if (WEB_IMAGE.test(spec.image)) return { kind: 'web' };
  if (spec.stdin) return { kind: 'command', argv: [shell] };
  return {
    kind: 'idle',
    lines: [`${spec.name}: nothing to run, waiting (images are not pulled in the demo)`],
  };
}

/** Returns the regular containers of a pod. */
export function podContainers(pod: ApiObject): readonly ContainerSpec[] {
  return arrayAt(pod, 'spec', 'containers').map(parseContainer);
}

/** Returns the ephemeral containers of a pod, which `kubectl debug` creates. */
export function ephemeralContainers(pod: ApiObject): readonly ContainerSpec[] {
  return arrayAt(pod, 'spec', 'ephemeralContainers').map(parseContainer);
}
