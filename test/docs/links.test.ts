/**
 * Checks every page of the repository: the targets of its links and headings exist, and every page of `docs/` can be
 * reached from its index.
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../../', import.meta.url));
const NOT_OURS = /^(?:node_modules|dist|release|\.git)$/;

const PAGES = pagesBelow('');

function pagesBelow(folder: string): readonly string[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return NOT_OURS.test(entry.name) ? [] : pagesBelow(path);
    return entry.name.endsWith('.md') ? [path] : [];
  });
}

/** Returns a page without code, because brackets in code are not links. */
function prose(page: string): string {
  return readFileSync(join(root, page), 'utf8')
    .replaceAll(/^ *```[^]*?^ *```/gm, '')
    .replaceAll(/`[^`\n]*`/g, (code) => code.replaceAll(/[[\]]/g, ''));
}

interface Link {
  readonly path: string;
  readonly anchor: string | undefined;
}

function linksOf(page: string): readonly Link[] {
  return [...prose(page).matchAll(/\]\(([^)\s]+)\)/g)].flatMap(([, target = '']) => {
    if (/^[a-z]+:/.test(target)) return [];
    const [path = '', anchor] = target.split('#', 2);
    return [{ path: path === '' ? page : normalize(join(dirname(page), path)), anchor }];
  });
}

/** Returns the anchors of a page's headings in GitHub's format. */
function anchorsOf(page: string): ReadonlySet<string> {
  const headings = [...prose(page).matchAll(/^#+ (.+)$/gm)].map(([, text = '']) =>
    text
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  );
  return new Set(headings);
}

/** Returns sentences about broken links. */
function broken(page: string, links: readonly Link[]): readonly string[] {
  return links.flatMap(({ path, anchor }) => {
    if (!existsSync(join(root, path))) return [`${page}: there is no ${path}`];
    if (anchor === undefined || !path.endsWith('.md') || anchorsOf(path).has(anchor)) return [];
    return [`${page}: ${path} has no heading #${anchor}`];
  });
}

describe('links between pages', () => {
  it('sees them', () => {
    expect(PAGES.length).toBeGreaterThan(40);
    expect(PAGES.flatMap(linksOf).length).toBeGreaterThan(100);
  });

  it('lead somewhere', () => {
    expect(PAGES.flatMap((page) => broken(page, linksOf(page)))).toEqual([]);
  });

  it('bite', () => {
    const made = [
      { path: 'docs/nowhere.md', anchor: undefined },
      { path: 'docs/README.md', anchor: 'no-such-heading' },
      { path: 'docs/README.md', anchor: 'concepts' },
    ];
    expect(broken('README.md', made)).toEqual([
      'README.md: there is no docs/nowhere.md',
      'README.md: docs/README.md has no heading #no-such-heading',
    ]);
  });

  it('lead from the index to every page of docs', () => {
    const index = new Set(linksOf('docs/README.md').map(({ path }) => path));
    const missing = PAGES.filter(
      (page) => /^docs\/[^/]+\.md$/.test(page) && page !== 'docs/README.md',
    ).filter((page) => !index.has(page));
    expect(missing).toEqual([]);
  });
});
