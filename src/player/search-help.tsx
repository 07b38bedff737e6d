/** Help for the search field: query syntax, with an example for each form. */
import type { JSX } from 'preact';
import { Drop } from './drop.tsx';
import { searchAddress } from './route.ts';

const EXAMPLES: readonly (readonly [query: string, says: string])[] = [
  ['connection refused', 'both words on the screen, within some seconds'],
  ['"connection refused"', 'one behind the other'],
  ['deploy*', 'words that begin so; three characters at least'],
  ['timeout OR refused', 'one of them'],
  ['error -debug', 'not in the same moment'],
  ['cmd:"kubectl delete"', 'in commands: the session’s own, and those typed at a prompt'],
  ['text:password', 'on the screen and nowhere else'],
  ['user:alice@example.com', 'whose session it was; or tag:tag:ci'],
  ['ns:prod pod:web-*', 'where; or container: and node:'],
  ['kind:exec state:running', 'exec, attach, ssh; running, closed, interrupted, violated, damaged'],
  ['after:7d before:2026-01-31', 'when it began: an age, a date or a time (UTC)'],
  ['duration:>10m exit:!=0', 'how long, and how it ended'],
  ['hidden:>0', 'characters were written but never visible'],
];

const KEYS: readonly (readonly [key: string, does: string])[] = [
  ['/', 'to the field'],
  ['↓ ↑', 'from hit to hit'],
  ['Enter', 'opens it two seconds before'],
  ['n N', 'in a recording: next hit, hit before'],
];

export function SearchHelp(): JSX.Element {
  return (
    <Drop class="search-help" label="How to search">
      <dl>
        {EXAMPLES.map(([query, says]) => (
          <div key={query}>
            <dt>
              <a href={searchAddress(query)}>
                <code>{query}</code>
              </a>
            </dt>
            <dd>{says}</dd>
          </div>
        ))}
        {KEYS.map(([key, does]) => (
          <div key={key}>
            <dt>
              {key.split(' ').map((name) => (
                <kbd key={name}>{name}</kbd>
              ))}
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
    </Drop>
  );
}
