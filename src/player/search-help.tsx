/** Help for the search field: query syntax, with an example for each form. */
import { CircleQuestionMark } from 'lucide';
import type { JSX } from 'preact';
import { Drop } from './drop.tsx';
import { searchAddress } from './route.ts';

const EXAMPLES: readonly (readonly [query: string, meaning: string])[] = [
  ['connection refused', 'both words on the screen, within a few seconds'],
  ['"connection refused"', 'the words in this order'],
  ['deploy*', 'words with this prefix of at least three characters'],
  ['timeout OR refused', 'one of the words'],
  ['error -debug', 'the first word without the second one'],
  ['cmd:"kubectl delete"', 'commands: of the session, and typed at a prompt'],
  ['text:password', 'only text on the screen'],
  ['user:alice@example.com', 'user of the session; tag:tag:ci for a tag'],
  ['ns:prod pod:web-*', 'target of the session; also cluster:, container: and node:'],
  [
    'kind:exec state:running',
    'kind: exec, attach, ssh; state: running, completed, interrupted, violated, damaged',
  ],
  ['after:7d before:2026-01-31', 'start of the session: an age, a date or a time in UTC'],
  ['duration:>10m exit:!=0', 'length and exit status'],
  ['tag:incident reviewed:no', 'tags and reviews of viewers'],
  ['hidden:>0', 'sessions with characters that were never visible'],
];

const KEYS: readonly (readonly [key: string, meaning: string])[] = [
  ['/', 'focus the search field'],
  ['↓ ↑', 'next or previous match'],
  ['Enter', 'open the recording two seconds before the match'],
  ['n N', 'next or previous match in a recording'],
];

export function SearchHelp(): JSX.Element {
  return (
    <Drop class="search-help" icon={CircleQuestionMark} label="Search syntax">
      <dl>
        {EXAMPLES.map(([query, meaning]) => (
          <div key={query}>
            <dt>
              <a href={searchAddress(query)}>
                <code>{query}</code>
              </a>
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
        {KEYS.map(([key, meaning]) => (
          <div key={key}>
            <dt>
              {key.split(' ').map((name) => (
                <kbd key={name}>{name}</kbd>
              ))}
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
    </Drop>
  );
}
