/**
 * The page of access requests. It shows pending requests that the viewer may decide, granted access, and the viewer's
 * own requests. The viewer confirms each decision with a second click, or by pressing the same key again.
 */
import { useEffect, useRef, useState } from 'preact/hooks';
import { durationText } from './format.ts';

export type CallGateway = (path: string, method: 'GET' | 'POST') => Promise<Response>;

/** An access request in the form of the gateway's API (`src/access/view.ts`). */
interface AccessRequest {
  readonly id: string;
  readonly state: string;
  readonly access: string;
  readonly requester: string;
  readonly node: string;
  readonly cluster?: string;
  readonly namespaces: readonly string[];
  readonly reason: string;
  /** The gateway's description of the call that caused the request. */
  readonly call: string;
  readonly durationSeconds: number;
  /** End of the granted access. For a pending request, the time until which it can be decided. */
  readonly expiresAt: string;
  readonly approvalsNeeded: number;
  readonly decisions: readonly { readonly verdict: string; readonly by: string; readonly reason: string }[];
  readonly isMine: boolean;
  readonly mayDecide: boolean;
  readonly mayRevoke: boolean;
}

const PATH = 'api/v1/access/requests';
const REFRESH_MS = 3000;
const KEYS: Readonly<Record<string, string>> = { a: 'approve', d: 'deny', r: 'revoke' };

/** The page. */
export function AccessPage({ ask }: { readonly ask: CallGateway }) {
  const [requests, setRequests] = useState<readonly AccessRequest[]>();
  const [problem, setProblem] = useState<string>();
  const load = async (): Promise<void> => {
    try {
      const { requests: found } = await read<{ requests: readonly AccessRequest[] }>(ask(PATH, 'GET'));
      setRequests(found);
      setProblem(undefined);
    } catch (error) {
      setProblem(String(error instanceof Error ? error.message : error));
    }
  };
  useEffect(() => {
    void load();
    const timer = setInterval(() => void load(), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const decide = async (id: string, verdict: string): Promise<void> => {
    try {
      await read(ask(`${PATH}/${id}/${verdict}`, 'POST'));
      await load();
    } catch (error) {
      setProblem(String(error instanceof Error ? error.message : error));
    }
  };
  const all = requests ?? [];
  const sections: readonly (readonly [string, readonly AccessRequest[]])[] = [
    ['To decide', all.filter(({ mayDecide }) => mayDecide)],
    ['Granted now', all.filter(({ state }) => state === 'granted')],
    ['My requests', all.filter(({ isMine, state }) => isMine && state !== 'granted')],
  ];
  return (
    <main>
      <h1>Access requests</h1>
      <p>
        <a href="./">Recordings</a>
      </p>
      {problem === undefined ? null : (
        <p class="notice" role="alert">
          {problem}
        </p>
      )}
      {requests === undefined && problem === undefined ? <p class="notice">Loading…</p> : null}
      {sections.map(([title, list]) => (
        <section key={title} aria-label={title}>
          <h2>{title}</h2>
          {list.length === 0 ? <p>None.</p> : null}
          <ul>
            {list.map((request) => (
              <RequestRow key={request.id} request={request} decide={decide} />
            ))}
          </ul>
        </section>
      ))}
    </main>
  );
}

function RequestRow({
  request,
  decide,
}: {
  readonly request: AccessRequest;
  readonly decide: (id: string, verdict: string) => Promise<void>;
}) {
  const [armed, setArmed] = useState<string>();
  const row = useRef<HTMLLIElement>(null);
  const { id, state, access, requester, node, cluster, namespaces, reason, call, decisions } = request;
  useEffect(() => {
    if (location.hash === `#${id}`) row.current?.focus();
  }, [id]);
  const verdicts = [
    ...(request.mayDecide ? ['approve', 'deny'] : []),
    ...(request.mayRevoke ? ['revoke'] : []),
  ];
  const press = (verdict: string): void => {
    setArmed(armed === verdict ? undefined : verdict);
    if (armed === verdict) void decide(id, verdict);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const verdict = KEYS[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (verdict !== undefined && verdicts.includes(verdict)) press(verdict);
  };
  const where = [cluster, ...namespaces].filter((name) => name !== undefined).join(', ');
  return (
    <li ref={row} tabIndex={0} onKeyDown={onKeyDown} data-id={id}>
      <strong>{access}</strong> for {requester} ({node}){where === '' ? '' : ` in ${where}`}: {state}
      {timeOf(request)}
      {decisions.map(({ verdict, by, reason: why }) => (
        <span key={`${verdict} ${by}`}>{`. ${verdict} by ${by}${why === '' ? '' : `: ${why}`}`}</span>
      ))}
      {/* these texts follow the decisions in separate elements, so that they cannot imitate a decision */}
      {call === '' ? null : (
        <div>
          First call: <q>{call}</q>
        </div>
      )}
      {reason === '' ? null : (
        <div>
          Reason: <q>{reason}</q>
        </div>
      )}{' '}
      <code>{id}</code>{' '}
      {verdicts.map((verdict) => (
        <button key={verdict} type="button" onClick={() => press(verdict)} aria-pressed={armed === verdict}>
          {armed === verdict ? `Confirm: ${verdict}` : `${verdict} (${verdict.charAt(0)})`}
        </button>
      ))}
    </li>
  );
}

async function read<T>(asked: Promise<Response>): Promise<T> {
  const response = await asked;
  // oxlint-disable-next-line typescript/consistent-type-assertions -- the gateway that serves the page sends this body
  const body = (await response.json()) as T & { readonly message?: string };
  if (response.ok) return body;
  throw new Error(body.message ?? `the gateway returned ${response.status}`);
}

function timeOf({ state, durationSeconds, expiresAt }: AccessRequest): string {
  const time = new Date(expiresAt).toLocaleString();
  if (state === 'pending') return `, for ${durationText(durationSeconds)}, decide before ${time}`;
  return state === 'granted' ? `, until ${time}` : '';
}
