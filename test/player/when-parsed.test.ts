import { expect, it } from 'vitest';
import { whenParsed } from '../../src/player/when-parsed.ts';

it('the page is rendered after its body was parsed, even if its script runs earlier', async () => {
  const page = Object.assign(new EventTarget(), { readyState: 'loading' as const });
  const rendered: string[] = [];
  whenParsed(page, () => rendered.push('late body'));
  whenParsed(Object.assign(new EventTarget(), { readyState: 'interactive' as const }), () =>
    rendered.push('parsed body'),
  );
  await Promise.resolve();
  expect(rendered).toEqual(['parsed body']);
  page.dispatchEvent(new Event('DOMContentLoaded'));
  page.dispatchEvent(new Event('DOMContentLoaded'));
  expect(rendered).toEqual(['parsed body', 'late body']);
});
