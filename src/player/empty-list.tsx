/** Content of an empty list: instructions to record the first session, or advice for a query without results. */
import { SearchX, SquareTerminal } from 'lucide';
import type { JSX } from 'preact';
import type { Query } from '../search/query.ts';
import { begunWith, partsOf, withoutPart } from '../search/nearest-query.ts';
import { COVERED_TEXT, NOT_INDEXED, secretNotice } from '../search/secret-notice.ts';
import { Icon } from './icon.tsx';
import { searchAddress } from './route.ts';

export function EmptyStore(): JSX.Element {
  return (
    <section class="empty">
      <Icon icon={SquareTerminal} size={36} />
      <h2>No recordings yet</h2>
      <p>Open a shell in a pod through the gateway. The recording appears here while the session runs.</p>
      <pre tabIndex={0}>
        <code>
          {'tailcast kubeconfig <gateway>\nkubectl --context <gateway> exec -it deploy/<name> -- sh'}
        </code>
      </pre>
      <p class="soft">
        If the session does not appear, run <code>tailcast doctor</code>. It checks the grants, the gateway
        and the recorder.
      </p>
    </section>
  );
}

/** Advice for a search without results. */
export function EmptySearch({ query }: { readonly query: Query }): JSX.Element {
  const parts = partsOf(query);
  const begun = begunWith(query, Date.now());
  return (
    <section class="empty">
      <Icon icon={SearchX} size={36} />
      <h2>No recording matches</h2>
      <p>{secretNotice(query) ?? `The search covered ${COVERED_TEXT}. ${NOT_INDEXED}`}</p>
      <ul class="nearest">
        {begun === undefined ? null : (
          <li>
            Only whole words match. Search for a prefix: <a href={searchAddress(begun)}>{begun}</a>
          </li>
        )}
        {parts.length < 2
          ? null
          : parts.map((part, index) => (
              <li key={part}>
                Search without <code>{part}</code>:{' '}
                <a href={searchAddress(withoutPart(query, index))}>{withoutPart(query, index)}</a>
              </li>
            ))}
        <li>
          <a href={searchAddress('')}>Show all recordings</a>
        </li>
      </ul>
    </section>
  );
}
