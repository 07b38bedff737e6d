import { render } from 'preact';
import { AccessPage } from './access-page.tsx';
import './style.css';

const root = document.getElementById('app');
if (root !== null) {
  root.replaceChildren();
  render(<AccessPage ask={(path, method) => fetch(path, { method })} />, root);
}
