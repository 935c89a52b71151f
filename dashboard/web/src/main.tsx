import { render } from 'preact';
import './css/tokens.css';
import './css/base.css';
import './css/parts.css';
import './css/pages.css';
import './css/records.css';
import { App } from './app';
import { start } from './live';
import './theme';

start();
render(<App />, document.getElementById('app')!);
