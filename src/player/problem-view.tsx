/** Views for errors of the recorder. The views show the request, the viewer, and a contact. */
import { CircleAlert, Lock, ServerOff } from 'lucide';
import type { JSX } from 'preact';
import { ArchiveError } from './archive-error.ts';
import { ageText, viewRequestText } from './format.ts';
import { Icon, type IconShape } from './icon.tsx';
import { formatRoute } from './route.ts';
import { ScriptError } from './script-error.ts';
import { EMPTY_FILTER } from './addresses.ts';

export interface RecorderProblemProps {
  readonly problem: Error;
  /** Time of the last response of the recorder, in milliseconds since the epoch. */
  readonly seenAt?: number | undefined;
}

/** An error with its details and a next step. */
export function RecorderProblem({ problem, seenAt }: RecorderProblemProps): JSX.Element {
  const { icon, title, help } = explain(problem);
  return (
    <div class="notice problem panel-problem" role="alert">
      <Icon icon={icon} size={20} />
      <div>
        <strong>{title}</strong>
        <p>{problem.message}</p>
        {problem instanceof ArchiveError && problem.status === 403 ? <Refused problem={problem} /> : null}
        {help === undefined ? null : <p>{help}</p>}
        {isMissing(problem) ? <AllRecordings /> : null}
        {seenAt === undefined || !isUnreachable(problem) ? null : (
          <p>
            The recorder last responded {ageText(new Date(seenAt).toISOString(), Date.now())} (
            {new Date(seenAt).toLocaleTimeString()}). The page retries automatically.
          </p>
        )}
      </div>
    </div>
  );
}

/** The viewer and the request that the recorder rejected. */
function Refused({ problem: { viewer, url } }: { readonly problem: ArchiveError }): JSX.Element {
  return (
    <p>
      {viewer === undefined ? 'The response does not contain your name.' : `You are ${viewer}.`} You
      requested: {viewRequestText(url)}.
    </p>
  );
}

const GATEWAY_HELP =
  'The tailnet policy and the settings of the gateway decide who may use it. Ask the administrator of the ' +
  'gateway for access, and quote the sentences above.';

const HELP =
  'The viewer rules of the recorder decide who sees which recordings. Ask the administrator of the ' +
  'recorder for access, and quote the ';

/**
 * Text of the list for a viewer without a matching rule. The text is the same whether or not the store has recordings,
 * so that it does not reveal whether recordings exist.
 */
export function NoRule({ viewer }: { readonly viewer: string }): JSX.Element {
  return (
    <section class="empty">
      <Icon icon={Lock} size={36} />
      <h2>No rule lets you see recordings</h2>
      <p>You are {viewer}. No viewer rule of this recorder matches you.</p>
      <p class="soft">{HELP}name above.</p>
    </section>
  );
}

function isUnreachable(problem: Error): boolean {
  return !(problem instanceof ArchiveError || problem instanceof ScriptError);
}

function explain(problem: Error): {
  readonly icon: IconShape;
  readonly title: string;
  readonly help?: string;
} {
  if (problem instanceof ScriptError)
    return {
      icon: CircleAlert,
      title: 'Reload this page',
      help: 'This page may be from another version of the recorder. Reload the page.',
    };
  const status = problem instanceof ArchiveError ? problem.status : 0;
  if (status === 403)
    return {
      icon: Lock,
      title: 'You may not see this',
      help: problem instanceof ArchiveError && problem.isOfGateway ? GATEWAY_HELP : `${HELP}sentences above.`,
    };
  if (isMissing(problem)) return { icon: CircleAlert, title: 'Recording not found' };
  if (status === 401) return { icon: Lock, title: 'The recorder does not know who you are' };
  if (status === 0)
    return {
      icon: ServerOff,
      title: 'The recorder does not respond',
      help: 'Check that this device is connected to the tailnet, and that the recorder runs.',
    };
  return { icon: CircleAlert, title: 'The recorder returned an error' };
}

function isMissing(problem: Error): boolean {
  return problem instanceof ArchiveError && problem.status === 404;
}

function AllRecordings(): JSX.Element {
  return (
    <p>
      <a href={formatRoute({ view: 'list', filter: EMPTY_FILTER, query: '' })}>Show all recordings</a>
    </p>
  );
}

/** Page for an unknown address. */
export function UnknownPage({ path }: { readonly path: string }): JSX.Element {
  return (
    <section class="empty">
      <Icon icon={CircleAlert} size={36} />
      <h1>Unknown address</h1>
      <p>
        This page has no view <code>{path}</code>.
      </p>
      <AllRecordings />
    </section>
  );
}
