import { ask } from './start.ts';
import { render } from 'preact';
import { App } from './app.tsx';
import { exportRecording } from './export-recording.ts';
import { applyTheme } from './preferences.ts';
import { Recorder } from './recorder-context.ts';
import { whenParsed } from './when-parsed.ts';
import './style.css';

applyTheme();
// `start.ts` loads the views early, and they import this module, so it may run before the body of the page is parsed
whenParsed(document, () => {
  const root = document.getElementById('app');
  if (root === null) return;
  root.replaceChildren();
  render(
    <Recorder.Provider value={{ ask, exportRecording: (...wanted) => exportRecording(ask, ...wanted) }}>
      <App />
    </Recorder.Provider>,
    root,
  );
});
